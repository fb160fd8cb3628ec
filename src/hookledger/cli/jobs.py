"""`hookledger jobs`: bulk jobs, their progress, running and cancelling them."""

from __future__ import annotations

from uuid import UUID

import click
import msgspec

from ..inbox import Inbox
from ..operate.bulk import jobs as bulk_jobs
from ..operate.context import Context
from ..store.ops.audit import Audit
from ..store.ops.job import ItemOutcome, Job, JobItem, NotAllowedGroup
from .bulk import job_size
from .common import audited, inbox_options, print_json, prints_json, run_on, second, status, table_console
from .filters import limit_option, options_of
from .follow import counted, follow
from .groups import ListsByDefault
from .table import Listing, coloured, moment, number, option_pairs, print_command, print_facts, prose, say


@click.group(cls=ListsByDefault)
def jobs() -> None:
    """List, run or cancel bulk jobs

    `hookledger bulk` plans jobs, and workers run them.
    """


@jobs.command("list")
@click.option("--before", type=click.UUID, help="Only older than this job: the next page.")
@limit_option(50)
@inbox_options
@prints_json
def list_jobs(inbox: Inbox, before: UUID | None, limit: int, as_json: bool) -> None:
    """List jobs, newest first"""
    found = run_on(inbox, lambda context: bulk_jobs.jobs(context, before=before, limit=limit))
    if as_json:
        print_json(found)
        return
    figures = (number("events"), number("done"), number("not allowed"), "a second")
    listing = Listing("job", "made (UTC)", "state", "what", *figures, "by", prose("why"), heads=4)
    for job in found:
        counts = [f"{n:,}" for n in (job.total, job.done, job.not_allowed)]
        made = (str(job.id), second(job.created_at), _state(job), job.what)
        listing.add(*made, *counts, _rate(job), job.actor, job.reason)
    listing.print(empty="No jobs.")


@jobs.command()
@click.argument("job")
@inbox_options
@prints_json
def show(inbox: Inbox, job: str, as_json: bool) -> None:
    """Show a job's progress, event states and what was not allowed"""

    async def read(context: Context) -> tuple[Job, list[NotAllowedGroup], dict[str, int]]:
        found = await bulk_jobs.find(context, job)
        return found, await bulk_jobs.causes(context, found), await bulk_jobs.states(context, found)

    found, causes, now = run_on(inbox, read)
    if as_json:
        print_json({**msgspec.to_builtins(found), "causes": causes, "now": now})
        return
    console = table_console()
    begun = f"{moment(found.started_at)} UTC, last by {found.worker or ''}" if found.started_at else ""
    ended = f"{found.state} {moment(found.finished_at)} UTC" if found.finished_at else ""
    by = f" by {found.cancelled_by}: {found.cancel_reason or ''}" if found.cancelled_by else ""
    print_facts(
        console,
        (
            ("job", str(found.id)),
            ("does", f"{job_size(found)}, {_state(found)}"),
            ("so far", f"{found.done:,} done, {found.not_allowed:,} not allowed, {found.open:,} open"),
            ("a second", _rate(found)),
            ("made", f"{moment(found.created_at)} UTC by {found.actor}: {found.reason}"),
            ("acted on", f"{found.done:,}: {counted(now)} now" if now else ""),
            ("the events", option_pairs(options_of(found.where)) or "all"),
            ("begun", begun),
            ("ended", ended + by),
        ),
    )
    if causes:
        listing = Listing("not allowed because of", number("events"), prose("one of them"), heads=2)
        for group in causes:
            listing.add(group.cause, f"{group.count:,}", group.sample)
        listing.print(console)
        outcome = ("--outcome", "not_allowed")
        print_command("Each of them", ["hookledger", "jobs", "items", str(found.id), *outcome])


@jobs.command()
@click.argument("job")
@click.option("--outcome", type=click.Choice([one.value for one in ItemOutcome]), help="Only with this outcome.")
@click.option("--after", type=click.UUID, help="Only after this event: the next page.")
@limit_option(50)
@inbox_options
@prints_json
def items(inbox: Inbox, job: str, outcome: str | None, after: UUID | None, limit: int, as_json: bool) -> None:
    """List a job's events and what happened to each

    was: the state when the set was frozen. outcome: whether the action was taken or not allowed. now: the state now,
    after a worker processed what the job retried or replayed.
    """

    async def read(context: Context) -> list[JobItem]:
        wanted = ItemOutcome(outcome) if outcome else None
        known = await bulk_jobs.find(context, job)
        return await bulk_jobs.items(context, known, outcome=wanted, after=after, limit=limit)

    found = run_on(inbox, read)
    if as_json:
        print_json(found)
        return
    listing = Listing("event", "now", "was", "outcome", "cause", prose("why"), heads=2)
    for item in found:
        now = coloured(item.now) if item.now else "pruned"
        listing.add(str(item.event_id), now, item.state, item.outcome or "", item.cause or "", item.words or "")
    listing.print(empty="No events.")
    if len(found) == limit:
        say(f"There may be more: --after {found[-1].event_id}")


@jobs.command()
@click.argument("job")
@audited
@inbox_options
@prints_json
def cancel(inbox: Inbox, job: str, by: Audit, as_json: bool) -> None:
    """Cancel a job after its current step

    Actions already taken stay; the other events are not changed.
    """

    async def act(context: Context) -> Job:
        return await bulk_jobs.cancel(context, by, await bulk_jobs.find(context, job))

    found = run_on(inbox, act)
    if as_json:
        print_json(found)
    else:
        status.print(f"Job {found.id} is cancelled: {found.done:,} done, {found.open:,} not touched.")


@jobs.command("run")
@click.argument("job")
@inbox_options
@prints_json
def run_job(inbox: Inbox, job: str, as_json: bool) -> None:
    """Wait for a job, and run it here if no worker does"""
    found = follow(inbox, run_on(inbox, lambda context: bulk_jobs.find(context, job)))
    if as_json:
        print_json(found)


def _state(job: Job) -> str:
    if job.frozen_at is None and job.unfinished:
        return "planned, its set of events incomplete: cancel it and plan it again"
    return str(job.state)


def _rate(job: Job) -> str:
    return f"{job.per_second:g}" if job.per_second else "unlimited"
