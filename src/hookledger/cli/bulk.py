"""`hookledger bulk`: retry, replay, discard or resolve all matching events, once you confirm the count."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import WrongState
from ..inbox import Inbox
from ..operate import audit
from ..operate.bulk import plan as bulk_plan
from ..operate.bulk.plan import PER_SECOND, JobPreview
from ..operate.context import Context
from ..operate.workers import any_works
from ..store.ops.filters import Filter
from ..store.ops.job import BulkAction, Job, Resolving
from .common import actor_option, inbox_options, print_json, prints_json, reason_option, run_on, status, table_console
from .filters import FiltersEvents, filters_events
from .follow import follow
from .table import Listing, coloured, number, say

F = TypeVar("F", bound=Callable[..., Any])


def _bulk(command: F) -> F:
    """Add the options that all bulk commands share."""
    for option in (
        click.option("--detach", is_flag=True, help="Leave the job to the workers; return immediately."),
        click.option("--dry-run", is_flag=True, help="Print what matches; change nothing."),
        click.option("--yes", is_flag=True, help="Skip the count check."),
        click.option("--count", type=click.IntRange(0), help="Require this count."),
        click.option(
            "--per-second", type=click.FloatRange(0), default=PER_SECOND, help="Events per second; 0 = unlimited."
        ),
        prints_json,
        inbox_options,
        reason_option(unless="--dry-run"),
        actor_option,
        filters_events,
    ):
        command = option(command)
    return command


@click.group()
def bulk() -> None:
    """Retry, replay, discard or resolve matching events

    Prints how many events match, by source, type and state; confirm by typing the number, or by --count. Then the set
    is frozen: events that match later do not belong to it, and an event that changes before its turn is left alone.
    Workers run the job, even after this command has ended.
    """


@bulk.command("retry", cls=FiltersEvents)
@_bulk
def bulk_retry(**options: Any) -> None:
    """Retry matching failed, retrying or needs_review events"""
    _begin("retry", **options)


@bulk.command("replay", cls=FiltersEvents)
@_bulk
def bulk_replay(**options: Any) -> None:
    """Process matching events again, each as a new run

    Effects that are done are skipped. Events whose replay needs a decision are left alone: `hookledger jobs show`
    says why.
    """
    _begin("replay", **options)


@bulk.command("discard", cls=FiltersEvents)
@_bulk
def bulk_discard(**options: Any) -> None:
    """Close matching events without processing them

    They must be pending, retrying, failed or in review.
    """
    _begin("discard", **options)


@bulk.command("resolve", cls=FiltersEvents)
@click.argument("resolves", metavar="EFFECT")
@click.option("--happened", is_flag=True, help="You found that all of them happened.")
@click.option("--did-not-happen", is_flag=True, help="You found that all of them did not happen.")
@click.option("--fingerprint", help="Require the same calls that --dry-run saw.")
@_bulk
def bulk_resolve(resolves: str, happened: bool, did_not_happen: bool, **options: Any) -> None:
    """Decide the outcome of unknown effects of matching events

    EFFECT is a name. After --happened the effects are not performed again; after --did-not-happen they are, each
    under its own idempotency key. The count is that of effects. Your finding is about the calls that --dry-run saw:
    --fingerprint limits the job to them. An effect whose outcome became known, that was called again or that another
    operator decided before its turn is left alone; an event with several is decided as a whole or not at all.
    """
    if happened == did_not_happen:
        raise click.UsageError("give either --happened or --did-not-happen")
    _begin("resolve", Resolving(resolves, "happened" if happened else "did_not_happen"), **options)


def _begin(
    name: BulkAction,
    resolving: Resolving | None = None,
    *,
    inbox: Inbox,
    where: Filter,
    reason: str | None,
    actor: str,
    per_second: float,
    count: int | None,
    yes: bool,
    dry_run: bool,
    detach: bool,
    as_json: bool,
    fingerprint: str | None = None,
) -> None:
    if reason is None and not dry_run:
        raise click.UsageError("--reason is required unless --dry-run")
    preview = run_on(inbox, lambda context: bulk_plan.look(context, name, where, resolving))
    if not as_json or not dry_run:
        _print_preview(preview, resolving, to_status=as_json)
    if dry_run:
        if as_json:
            print_json(preview)
        return
    agreed = _agreed(preview, count, yes or fingerprint is not None)
    if count is None and not yes and fingerprint is None:
        fingerprint = preview.fingerprint  # the typed count confirms the calls shown above

    async def plan(context: Context) -> Job:
        how: dict[str, Any] = {"count": agreed, "per_second": per_second, "resolving": resolving}
        return await bulk_plan.plan(context, by, name, where, fingerprint=fingerprint, **how)

    by = audit.by(actor, reason or "")
    job = run_on(inbox, plan)
    say(f"Job {job.id} is planned: {job_size(job)}.")
    if not detach:
        job = follow(inbox, job)
    else:
        alive = run_on(inbox, any_works)
        waits = f"No worker is alive: start one, or run hookledger jobs run {job.id}"
        say(f"{'A worker runs it now' if alive else waits}. To watch: hookledger jobs show {job.id}")
    if as_json:
        print_json(job)


def job_size(job: Job) -> str:
    """Return the action and the number of events, such as "retry of 12 events"."""
    effects = "" if job.resolving is None else f", {job.effects:,} effects: {job.resolving.words}"
    return f"{job.name} of {job.total:,} events{effects}"


def _agreed(preview: JobPreview, count: int | None, yes: bool) -> int | None:
    """Return the confirmed count; None: any count is accepted."""
    if count is not None or yes:
        return count
    what = "events match" if preview.effects is None else "effects would be decided"
    if preview.agreed == 0:
        raise WrongState(f"nothing was planned: no {what}")
    if not sys.stdin.isatty():
        these = f" --fingerprint {preview.fingerprint}" if preview.fingerprint else ""
        raise WrongState(f"{preview.agreed:,} {what}: confirm with --count {preview.agreed}{these}, or with --yes")
    which = "events" if preview.effects is None else "effects"
    typed: int = click.prompt(f"To {preview.name} them, type the number of {which}", type=int, err=True)
    if typed != preview.agreed:
        raise WrongState(f"nothing was planned: you typed {typed:,}, and {preview.agreed:,} match")
    return typed


def _print_preview(preview: JobPreview, resolving: Resolving | None, *, to_status: bool) -> None:
    console = status if to_status else table_console()
    listing = Listing(number("events"), "state", "source", "type", heads=4)
    for group in preview.groups:
        listing.add(f"{group.count:,}", coloured(group.state), group.source, group.type)
    listing.print(console)
    having = f", and have an effect {resolving.effect} that is unknown" if resolving else ""
    say(f"{preview.count:,} events match{having}.", console)
    if resolving is not None and preview.effects:
        say(f"{preview.effects:,} unknown effects of them would be decided: {resolving.words}.", console)
        say(f"{preview.consequence}.", console)
        say(f"To require exactly these calls: --fingerprint {preview.fingerprint}", console)
    shown = sum(group.count for group in preview.groups)
    if shown > preview.allowed:
        unfit = shown - preview.allowed
        say(f"{unfit:,} of them are in a state in which {preview.name} is not allowed.", console)
    if preview.sampled:
        verdicts = ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(preview.verdicts.items()))
        say(f"Replay verdicts of the newest {preview.sampled:,} of them: {verdicts}.", console)
