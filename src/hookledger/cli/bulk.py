"""`hookledger bulk retry`, `replay`, `discard`, `resolve`: one action on many events, when its count is agreed to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import WrongState
from ..filters import Filter
from ..inbox import Inbox
from ..operate.bulk import PER_SECOND, Prospect
from ..store.ops.jobs import Deed, Job, Resolving
from .common import default_actor, looks_at_inbox, print_json, prints_json, run, status, table_console
from .filters import filters_events
from .follow import follow
from .following import any_worker_alive
from .look import coloured
from .table import Listing, number, say, whole

F = TypeVar("F", bound=Callable[..., Any])


def _bulk(command: F) -> F:
    """The options that every kind of bulk work has."""
    for option in (
        click.option("--detach", is_flag=True, help="Leave it to the workers, and return at once."),
        click.option("--dry-run", is_flag=True, help="Only say what it would be about; change nothing."),
        click.option("--yes", is_flag=True, help="Agree to whatever the count is."),
        click.option("--count", type=click.IntRange(0), help="Agree to this count, and to no other."),
        click.option(
            "--per-second", type=click.FloatRange(0), default=PER_SECOND, help="The pace; 0: as fast as it goes."
        ),
        prints_json,
        looks_at_inbox,
        click.option("--reason", envvar="HOOKLEDGER_REASON", help="Why, for the audit; needed unless --dry-run."),
        click.option("--actor", default=default_actor, envvar="HOOKLEDGER_ACTOR", help="Who asks."),
        filters_events,
    ):
        command = option(command)
    return command


@click.group()
def bulk() -> None:
    """One action on all events that match, at a pace: retry, replay, discard, or resolve an effect of each.

    First it is said how many events match, by source, type and state; you agree by typing the number, or give it by
    --count. The set is frozen then: what matches later does not belong to it, and what changes before its turn comes
    is refused, with words that say what changed. A worker runs it, also when this command is gone.
    """


@bulk.command("retry")
@_bulk
def bulk_retry(**options: Any) -> None:
    """Send all matching events round again that are failed, retrying or in review."""
    _begin("retry", **options)


@bulk.command("replay")
@_bulk
def bulk_replay(**options: Any) -> None:
    """Process all matching events again, each as a new run; what is done is skipped.

    Those whose replay needs a decision first are refused: `hookledger jobs show` says why.
    """
    _begin("replay", **options)


@bulk.command("discard")
@_bulk
def bulk_discard(**options: Any) -> None:
    """Close all matching events that are pending, retrying, failed or in review."""
    _begin("discard", **options)


@bulk.command("resolve")
@click.argument("resolves", metavar="EFFECT")
@click.option("--happened", is_flag=True, help="You found that all of them happened.")
@click.option("--did-not-happen", is_flag=True, help="You found that none of them did.")
@click.option("--fingerprint", help="Agree to the calls that --dry-run looked at, and to no later ones.")
@_bulk
def bulk_resolve(resolves: str, happened: bool, did_not_happen: bool, **options: Any) -> None:
    """Decide about all unknown effects named EFFECT of the matching events.

    After --happened they are not done again; after --did-not-happen they are, each under its own idempotency key. The
    count to agree to is that of effects; what you know is about the calls that --dry-run saw, and --fingerprint keeps
    it to them, however long ago you looked. One that became known, was called again or was decided by somebody else
    before its turn comes is refused; an event with several is decided as a whole, or not at all.
    """
    if happened == did_not_happen:
        raise click.UsageError("say what you found: one of --happened and --did-not-happen")
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
        raise click.UsageError("say why: --reason; or only look: --dry-run")
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
        raise WrongState(f"{prospect.agreed:,} {what}: agree by --count {prospect.agreed}{these}, or by --yes")
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
        say(f"To agree to these calls, and to no later ones: --fingerprint {prospect.fingerprint}", console)
    shown = sum(portion.count for portion in prospect.portions)
    if shown > prospect.fitting:
        unfit = shown - prospect.fitting
        say(f"{unfit:,} of them are in a state that {prospect.name} cannot begin in: they will be refused.", console)
    if prospect.sampled:
        verdicts = ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(prospect.verdicts.items()))
        say(f"What a replay means, for the newest {prospect.sampled:,} of them only: {verdicts}.", console)
