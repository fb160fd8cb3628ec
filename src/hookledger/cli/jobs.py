"""`hookledger jobs`: bulk jobs, their progress, running and cancelling them."""

from __future__ import annotations

from uuid import UUID

import click
import msgspec

from ..inbox import Inbox
from ..store.ops.job import ItemOutcome, Job, JobItem, Refusals
from .bulk import job_size
from .common import looks_at_inbox, names_actor, print_json, prints_json, run, second, status, table_console
from .filters import limit_option, options_of
from .follow import counted, follow
from .groups import ListsByDefault
from .look import coloured, moment
from .table import Listing, number, option_pairs, print_command, print_facts, prose, say, whole


@click.group(cls=ListsByDefault)
def jobs() -> None:
    """List, run or cancel bulk jobs

    `hookledger bulk` plans jobs, and workers run them.
    """


@jobs.command("list")
@click.option("--before", type=click.UUID, help="Only older than this job: the next page.")
@limit_option(50)
@looks_at_inbox
@prints_json
def list_jobs(inbox: Inbox, before: UUID | None, limit: int, as_json: bool) -> None:
    """List jobs, newest first"""

    async def read() -> list[Job]:
        async with inbox.opened() as store:
            return await inbox.insight(store).jobs(before=before, limit=limit)

    found = run(read())
    if as_json:
        print_json(found)
        return
    head = (whole("job", head=True), whole("made (UTC)", head=True), whole("state", head=True))
    figures = (number("events"), number("done"), number("refused"), whole("a second"))
    listing = Listing(*head, whole("what", head=True), *figures, whole("by"), prose("why"))
    for job in found:
        counts = [f"{n:,}" for n in (job.total, job.done, job.refused)]
        made = (str(job.id), second(job.created_at), _state(job), job.what)
        listing.add(*made, *counts, _pace(job), job.actor, job.reason)
    listing.print(table_console())
    if not found:
        status.print("No jobs.")


@jobs.command()
@click.argument("job")
@looks_at_inbox
@prints_json
def show(inbox: Inbox, job: str, as_json: bool) -> None:
    """Show a job's progress, event states and refusals"""

    async def read() -> tuple[Job, list[Refusals], dict[str, int]]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            found = await insight.job(job)
            return found, await insight.job_refusals(found), await insight.job_states(found)

    found, refusals, now = run(read())
    if as_json:
        print_json({**msgspec.to_builtins(found), "refusals": refusals, "now": now})
        return
    console = table_console()
    begun = f"{moment(found.started_at)} UTC, last by {found.worker or ''}" if found.started_at else ""
    ended = f"{found.state} {moment(found.finished_at)} UTC" if found.finished_at else ""
    by = f" by {found.ended_by}: {found.ended_why or ''}" if found.ended_by else ""
    print_facts(
        console,
        (
            ("job", str(found.id)),
            ("does", f"{job_size(found)}, {_state(found)}"),
            ("so far", f"{found.done:,} done, {found.refused:,} refused, {found.open:,} open"),
            ("a second", _pace(found)),
            ("made", f"{moment(found.created_at)} UTC by {found.actor}: {found.reason}"),
            ("acted on", f"{found.done:,}: {counted(now)} now" if now else ""),
            ("the events", option_pairs(options_of(found.where)) or "all"),
            ("begun", begun),
            ("ended", ended + by),
        ),
    )
    if refusals:
        listing = Listing(whole("refused because of", head=True), number("events", head=True), prose("one of them"))
        for group in refusals:
            listing.add(group.cause, f"{group.count:,}", group.sample)
        listing.print(console)
        refused = ("--outcome", "refused")
        print_command("Each of them", ["hookledger", "jobs", "items", str(found.id), *refused])


@jobs.command()
@click.argument("job")
@click.option("--outcome", type=click.Choice([one.value for one in ItemOutcome]), help="Only with this outcome.")
@click.option("--after", type=click.UUID, help="Only after this event: the next page.")
@limit_option(50)
@looks_at_inbox
@prints_json
def items(inbox: Inbox, job: str, outcome: str | None, after: UUID | None, limit: int, as_json: bool) -> None:
    """List a job's events and what happened to each

    was: the state when the set was frozen. outcome: whether the action was taken or refused. now: the state now,
    after a worker processed what the job retried or replayed.
    """

    async def read() -> list[JobItem]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            wanted = ItemOutcome(outcome) if outcome else None
            return await insight.job_items(await insight.job(job), outcome=wanted, after=after, limit=limit)

    found = run(read())
    if as_json:
        print_json(found)
        return
    head = (whole("event", head=True), whole("now", head=True))
    listing = Listing(*head, whole("was"), whole("outcome"), whole("cause"), prose("why"))
    for item in found:
        now = coloured(item.now) if item.now else "pruned"
        listing.add(str(item.event_id), now, item.state, item.outcome or "", item.cause or "", item.words or "")
    listing.print(table_console())
    if not found:
        status.print("No events.")
    if len(found) == limit:
        say(f"There may be more: --after {found[-1].event_id}")


@jobs.command()
@click.argument("job")
@names_actor
@looks_at_inbox
@prints_json
def cancel(inbox: Inbox, job: str, reason: str, actor: str, as_json: bool) -> None:
    """Cancel a job after its current step

    Actions already taken stay; the other events are not changed.
    """

    async def act() -> Job:
        async with inbox.opened() as store:
            found = await inbox.insight(store).job(job)
            return await inbox.actions(store, actor).cancel_job(found, reason)

    found = run(act())
    if as_json:
        print_json(found)
    else:
        status.print(f"Job {found.id} is cancelled: {found.done:,} done, {found.open:,} not touched.")


@jobs.command("run")
@click.argument("job")
@looks_at_inbox
@prints_json
def run_job(inbox: Inbox, job: str, as_json: bool) -> None:
    """Wait for a job, and run it here if no worker does"""

    async def read() -> Job:
        async with inbox.opened() as store:
            return await inbox.insight(store).job(job)

    found = follow(inbox, run(read()))
    if as_json:
        print_json(found)


def _state(job: Job) -> str:
    if job.frozen_at is None and job.unfinished:
        return "planned, its set incomplete: cancel it, and make it again"
    return str(job.state)


def _pace(job: Job) -> str:
    return f"{job.per_second:g}" if job.per_second else "unlimited"
