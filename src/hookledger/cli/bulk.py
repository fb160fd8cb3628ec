"""`hookledger bulk`: retry, replay, discard or resolve all matching events, once you confirm the count."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import WrongState
from ..filters import Filter
from ..inbox import Inbox
from ..operate.bulk import PER_SECOND, Prospect
from ..store.ops.job import Deed, Job, Resolving
from .common import actor_option, looks_at_inbox, print_json, prints_json, reason_option, run, status, table_console
from .filters import FiltersEvents, filters_events
from .follow import follow
from .following import any_worker_alive
from .look import coloured
from .table import Listing, number, say, whole

F = TypeVar("F", bound=Callable[..., Any])


def _bulk(command: F) -> F:
    """The options that every kind of bulk work has."""
    for option in (
        click.option("--detach", is_flag=True, help="Leave the job to the workers; return immediately."),
        click.option("--dry-run", is_flag=True, help="Print what matches; change nothing."),
        click.option("--yes", is_flag=True, help="Skip the count check."),
        click.option("--count", type=click.IntRange(0), help="Require this count."),
        click.option(
            "--per-second", type=click.FloatRange(0), default=PER_SECOND, help="Events per second; 0 = unlimited."
        ),
        prints_json,
        looks_at_inbox,
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
    is frozen: events that match later do not belong to it, and an event that changes before its turn is refused, with
    the reason. Workers run the job, even after this command has ended.
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

    Effects that are done are skipped. Events whose replay needs a decision are refused: `hookledger jobs show` says
    why.
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
    operator decided before its turn is refused; an event with several is decided as a whole or not at all.
    """
    if happened == did_not_happen:
        raise click.UsageError("give one of --happened and --did-not-happen")
    _begin("resolve", Resolving(resolves, "happened" if happened else "did_not_happen"), **options)


def _begin(
    name: Deed,
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
    prospect = run(_look(inbox, name, where, resolving))
    if not as_json or not dry_run:
        _print_prospect(prospect, resolving, to_status=as_json)
    if dry_run:
        if as_json:
            print_json(prospect)
        return
    agreed = _agreed(prospect, count, yes or fingerprint is not None)
    if count is None and not yes and fingerprint is None:
        fingerprint = prospect.fingerprint  # who typed the number has seen these

    async def plan() -> Job:
        async with inbox.opened() as store:
            actions = inbox.actions(store, actor)
            how: dict[str, Any] = {"count": agreed, "per_second": per_second, "resolving": resolving}
            how["fingerprint"] = fingerprint
            return await actions.plan_job(name, where, reason or "", **how)

    job = run(plan())
    say(f"Job {job.id} is planned: {job_size(job)}.")
    if not detach:
        job = follow(inbox, job)
    else:
        alive = run(_alive(inbox))
        waits = f"No worker is alive: it waits for one, or for hookledger jobs run {job.id}"
        words = f"{'A worker runs it' if alive else waits}. To watch: hookledger jobs show {job.id}"
        say(words)
    if as_json:
        print_json(job)


async def _alive(inbox: Inbox) -> bool:
    async with inbox.opened() as store:
        return await any_worker_alive(inbox, inbox.insight(store))


def job_size(job: Job) -> str:
    """What it does to how many."""
    effects = "" if job.resolving is None else f", {job.effects:,} effects: {job.resolving.words}"
    return f"{job.name} of {job.total:,} events{effects}"


async def _look(inbox: Inbox, name: Deed, where: Filter, resolving: Resolving | None) -> Prospect:
    async with inbox.opened() as store:
        return await inbox.insight(store).prospect(name, where, resolving)


def _agreed(prospect: Prospect, count: int | None, yes: bool) -> int | None:
    """The count that must hold; None: any."""
    if count is not None or yes:
        return count
    what = "events match" if prospect.effects is None else "effects would be decided"
    if prospect.agreed == 0:
        raise WrongState(f"no {what}: nothing was planned")
    if not sys.stdin.isatty():
        these = f", by --fingerprint {prospect.fingerprint}" if prospect.fingerprint else ""
        raise WrongState(f"{prospect.agreed:,} {what}: confirm by --count {prospect.agreed}{these}, or by --yes")
    which = "they" if prospect.effects is None else "effects they"
    typed: int = click.prompt(f"To {prospect.name} them, type how many {which} are", type=int, err=True)
    if typed != prospect.agreed:
        raise WrongState(f"{typed:,} is not {prospect.agreed:,}: nothing was planned")
    return typed


def _print_prospect(prospect: Prospect, resolving: Resolving | None, *, to_status: bool) -> None:
    console = status if to_status else table_console()
    kind = (whole("source", head=True), whole("type", head=True))
    listing = Listing(number("events", head=True), whole("state", head=True), *kind)
    for portion in prospect.portions:
        listing.add(f"{portion.count:,}", coloured(portion.state), portion.source, portion.type)
    listing.print(console)
    having = f", and have an effect {resolving.effect} that is unknown" if resolving else ""
    say(f"{prospect.count:,} events match{having}.", console)
    if resolving is not None and prospect.effects:
        say(f"{prospect.effects:,} unknown effects of them would be decided: {resolving.words}.", console)
        say(f"{prospect.then}.", console)
        say(f"To require exactly these calls: --fingerprint {prospect.fingerprint}", console)
    shown = sum(portion.count for portion in prospect.portions)
    if shown > prospect.fitting:
        unfit = shown - prospect.fitting
        say(f"{unfit:,} of them are in a state that {prospect.name} cannot begin in: they will be refused.", console)
    if prospect.sampled:
        verdicts = ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(prospect.verdicts.items()))
        say(f"What a replay means, for the newest {prospect.sampled:,} of them only: {verdicts}.", console)
