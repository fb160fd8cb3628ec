"""`hookledger prune` and `erase`: deleting data by rule, and content by decision."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec.structs import asdict
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..clock import NEVER
from ..errors import ConfigError, WrongState
from ..inbox import Inbox
from ..operate import audit
from ..operate.context import Context
from ..operate.retention.erase import Erasing, erase_all, erase_one
from ..operate.retention.prune import pruner
from ..operate.retention.settings import limits
from ..store.ops.audit import Audit
from ..store.ops.filters import EVERYTHING, Filter
from ..store.ops.pruning import Pruned
from .common import actor_option, audited, inbox_options, print_json, prints_json, run_on, status
from .filters import FiltersEvents, filters_events, source_option
from .table import Listing, number, say


@click.command()
@source_option
@click.option("--dry-run", is_flag=True, help="Print what would be deleted; change nothing.")
@click.option("--now", "from_start", is_flag=True, help="Start with the oldest, not where the last round ended.")
@click.option("--reason", default="retention", help="Audit reason.")
@actor_option
@inbox_options
@prints_json
def prune(
    inbox: Inbox, source: str | None, dry_run: bool, from_start: bool, reason: str, actor: str, as_json: bool
) -> None:
    """Delete data past its retention period

    Deletes payloads, history and finished events; keys stay. Workers prune periodically; this command does it
    immediately. Nothing is deleted unless [retention], or that of a source, sets a period.
    """
    if source is not None and source not in inbox.sources:
        raise ConfigError(f"unknown source {source!r}; configured: {', '.join(sorted(inbox.sources)) or 'none'}")

    by = audit.by(actor, reason)

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=status, transient=True, disable=not status.is_terminal) as progress:
        task = progress.add_task("looking", total=None)

        def tell(done: Pruned) -> None:
            progress.update(task, description=f"examined {done.looked_at:,}, deleted {done.total:,}")

        how: dict[str, Any] = {"source": source, "from_start": from_start, "dry": dry_run, "progress": tell}
        done = run_on(inbox, lambda context: pruner(context).round(by, **how))
    if as_json:
        print_json({"dry_run": dry_run, **msgspec.to_builtins(done)})
        return
    _print_rules(inbox)
    listing = Listing("would be deleted" if dry_run else "deleted", number("count"), heads=1)
    for name in ("events", "payloads", "history", "deliveries"):
        listing.add(name, f"{getattr(done, name):,}")
    listing.print()


def _print_rules(inbox: Inbox) -> None:
    settings = inbox.settings.retention
    rules = {"(default)": limits(settings)}
    rules |= {name: limits(settings, source.settings.retention) for name, source in inbox.sources.items()}
    if not any(rule.any for rule in rules.values()):
        say("Everything is kept forever: no [retention] is set.")
    for name, rule in rules.items():
        say(f"{name}: {', '.join(f'{kind} {_age(value)}' for kind, value in asdict(rule).items())}")


def _age(seconds: float) -> str:
    if seconds == NEVER:
        return "forever"
    return f"{seconds / 86400:g} d" if seconds >= 86400 else f"{seconds:g} s"


@click.command(cls=FiltersEvents)
@click.argument("event", required=False)
@filters_events
@click.option("--key-too", is_flag=True, help="Replace event and effect keys by digests too.")
@click.option("--whole-request", is_flag=True, help="Include the other events of the same request.")
@click.option("--dry-run", is_flag=True, help="Print what would be erased; change nothing.")
@click.option("--count", type=click.IntRange(0), help="Require this count.")
@click.option("--yes", is_flag=True, help="Skip the count check.")
@audited
@inbox_options
@prints_json
def erase(
    inbox: Inbox,
    event: str | None,
    where: Filter,
    key_too: bool,
    whole_request: bool,
    dry_run: bool,
    count: int | None,
    yes: bool,
    by: Audit,
    as_json: bool,
) -> None:
    """Erase the content of finished events

    Name one EVENT, or select events by filter options. Erases bodies, headers, effect arguments, results and
    tracebacks, for good. Keys and digests stay, so that no event is accepted and no effect performed again. The audit
    log records who and why.
    """
    if (event is None) == (where == EVERYTHING):
        raise click.UsageError("give either one EVENT or filter options")
    if event is None and not (dry_run or yes or count is not None):
        raise click.UsageError("confirmation is missing: give --count N or --yes; --dry-run prints what matches")
    options: dict[str, Any] = {"key_too": key_too, "whole_request": whole_request, "dry": dry_run}

    async def act(context: Context) -> Erasing:
        if event is not None:
            return await erase_one(context, by, event, **options)
        return await erase_all(context, by, where, count=count, **options)

    done = run_on(inbox, act)
    if as_json:
        print_json({"dry_run": dry_run, **msgspec.to_builtins(done)})
    else:
        would = "Would erase" if dry_run else "Erased"
        status.print(f"{would} {len(done.events):,} events, {done.requests:,} requests, {done.effects:,} effects.")
        for ident, why in done.not_allowed.items():
            say(f"not {ident}: {why}")
    if done.not_allowed:
        raise WrongState(f"{len(done.not_allowed):,} events stayed as they were")
