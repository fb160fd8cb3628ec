"""`hookledger reconcile`: compare with the provider's log, or repair one object."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.text import Text

from ..clock import Seconds
from ..errors import ConfigError
from ..inbox import Inbox
from ..model import base_source
from ..operate import audit, search
from ..operate.context import Context
from ..operate.reconcile import reconcile as operate
from ..operate.reconcile.compare import Report
from ..operate.reconcile.repair import repair, repair_event
from ..store.history import History
from ..store.ops.audit import Audit
from ..store.ops.reconciling import Counts
from . import exits
from .common import (
    actor_option,
    inbox_options,
    print_json,
    prints_json,
    reason_option,
    run_on,
    second,
    status,
)
from .table import Listing, prose, say

COLOURS = {"missing": "yellow", "failed": "red", "unknown": "magenta", "not_importable": "red"}


class When(click.ParamType[datetime]):
    """A time, or a duration ago."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.now(UTC) - timedelta(seconds=Seconds(value))
        except (ConfigError, OverflowError):
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a duration such as 24h nor a time such as 2027-01-31T09:00Z", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.command()
@click.argument("source")
@click.option("--since", type=When(), metavar="WHEN", help="Start: a duration ago (24h), or a time in UTC.")
@click.option("--until", type=When(), metavar="WHEN", help="End: a duration ago, or a time; default: now.")
@click.option("--dry-run", is_flag=True, help="Compare only: import nothing, request nothing.")
@click.option("--resend", is_flag=True, help="Ask the provider to redeliver missing events, if it can.")
@click.option("--event", metavar="EVENT", help="Repair the object of this event instead.")
@click.option("--object", "object_id", metavar="ID", help="Repair this object instead.")
@reason_option(unless="--dry-run")
@actor_option
@inbox_options
@prints_json
def reconcile(
    inbox: Inbox,
    source: str,
    since: datetime | None,
    until: datetime | None,
    dry_run: bool,
    resend: bool,
    event: str | None,
    object_id: str | None,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Import events missing here from the provider's log

    \b
    missing: listed by the provider, not recorded here; imported as its
      delivery would have been, so that a later delivery is a duplicate
    failed: recorded here, a dead letter or in review
    unknown: recorded here, not in the log
    not_importable: listed, and cannot be imported

    Exits 20 if there is any of them, even if it was imported.

    With --event or --object a worker runs the source's repair handler for one object; no log is read.
    """
    repairs = event is not None or object_id is not None
    if event is not None and object_id is not None:
        raise click.UsageError("--event and --object exclude each other: give one")
    if repairs and (since or until or dry_run or resend):
        raise click.UsageError(
            "--since, --until, --dry-run and --resend do not go with --event or --object: a repair reads no log"
        )
    if not dry_run and not (reason and reason.strip()):
        raise click.UsageError("--reason is required unless --dry-run")
    if repairs:
        _repair(inbox, source, event, object_id, audit.by(actor, reason or ""), as_json)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=status, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"reading the provider's log of {escape(source)}", total=None)

        def on_page(counts: Counts) -> None:
            progress.update(task, description=counts.words())

        async def act(context: Context) -> Report:
            window = operate.window_of(context, source, since, until)
            if dry_run:
                return await operate.compare(context, source, window, resend=resend, on_page=on_page)
            by = audit.by(actor, reason or "")
            return await operate.reconcile(context, by, source, window, resend=resend, on_page=on_page)

        report = run_on(inbox, act)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if report.problem:
        status.print(f"[bold red]error:[/] {escape(report.problem)}", soft_wrap=True)
        raise SystemExit(exits.PROVIDER)
    if not report.counts.clean:
        raise SystemExit(exits.DIFFERENCES)


def _print(report: Report) -> None:
    if report.differences:
        listing = Listing("when (UTC)", "what", "type", "key", "event", prose("here"), heads=3)
        for one in report.differences:
            listing.add(
                "" if one.at is None else second(one.at),
                Text(one.kind, COLOURS[one.kind]),
                one.type,
                one.key,
                "" if one.event_id is None else str(one.event_id),
                one.words or (one.state.value if one.state else ""),
            )
        listing.print()
    untold = report.counts.missing + report.counts.failed + report.counts.unknown + report.counts.not_importable
    untold -= len(report.differences)
    if untold > 0:
        status.print(f"{untold:,} more differences are not shown.")
    status.print(f"From {report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} UTC: {report.counts.words()}.")
    if report.dry_run and report.counts.missing:
        status.print("Nothing was imported: this was a dry run.")


def _repair(inbox: Inbox, source: str, event: str | None, object_id: str | None, by: Audit, as_json: bool) -> None:
    async def act(context: Context) -> History:
        if event is None:
            return await repair(context, by, source, object_id or "")
        known = (await search.find(context, event)).event
        if base_source(known.source) != source:
            raise click.UsageError(
                f"event {known.id} belongs to source {known.source}, not {source}: name that source"
            )
        return await repair_event(context, by, known)

    made = run_on(inbox, act).event
    if as_json:
        print_json(made)
    else:
        say(f"Repair of {made.object_id or ''} is {made.state}: event {made.id}.")
