"""`hookledger jobs`: what bulk work there is, how far it is, and how to stop it."""

from __future__ import annotations

from uuid import UUID

import click
import msgspec
from rich.markup import escape

from ..inbox import Inbox
from ..jobs import ItemOutcome, Job, JobItem, Refusals
from .bulk import job_size
from .common import brief, looks_at_inbox, narrow_table, print_json, prints_json, run, second, status, table_console
from .decide import names_actor
from .follow import follow
from .look import moment


class ListsByDefault(click.Group):
    """`jobs` alone, or with options only, is `jobs list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListsByDefault)
def jobs() -> None:
    """List bulk work; with a command, look at one job, wait for it or stop it."""


@jobs.command("list")
@click.option("--before", type=click.UUID, help="Only older than this job: for the next page.")
@click.option("--limit", default=50, type=click.IntRange(1, 1000), help="How many.")
@looks_at_inbox
@prints_json
def list_jobs(inbox: Inbox, before: UUID | None, limit: int, as_json: bool) -> None:
    """List jobs, the newest first."""

    async def read() -> list[Job]:
        async with inbox.opened() as store:
            return await inbox.insight(store).jobs(before=before, limit=limit)

    found = run(read())
    if as_json:
        print_json(found)
        return
    columns = ("job", "made (UTC)", "what", "state", "events", "done", "refused", "a second", "by", "why")
    table = narrow_table(*columns, folds="why")
    for job in found:
        figures = [f"{n:,}" for n in (job.total, job.done, job.refused)]
        who = (escape(job.actor), escape(job.reason))
        what = (brief(job.id), second(job.created_at), escape(job.what))
        table.add_row(*what, _state(job), *figures, _pace(job), *who)
    table_console().print(table)
    if not found:
        status.print("No jobs.")


@jobs.command()
@click.argument("job")
@looks_at_inbox
@prints_json
def show(inbox: Inbox, job: str, as_json: bool) -> None:
    """Show how far a JOB is, and why events of it were refused."""

    async def read() -> tuple[Job, list[Refusals]]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            found = await insight.job(job)
            return found, await insight.job_refusals(found)

    found, refusals = run(read())
    if as_json:
        print_json({**msgspec.to_builtins(found), "refusals": refusals})
        return
    console = table_console()
    console.print(f"[bold]Job {found.id}[/]: {job_size(found)}, {_state(found)}")
    console.print(f"{found.done:,} done, {found.refused:,} refused, {found.open:,} open; {_pace(found)} a second")
    console.print(f"made {moment(found.created_at)} UTC by {escape(found.actor)}: {escape(found.reason)}")
    console.print(f"the events: {escape(msgspec.json.encode(found.where).decode())}", soft_wrap=True)
    if found.started_at:
        console.print(f"begun {moment(found.started_at)} UTC, last by {escape(found.worker or '')}")
    if found.finished_at:
        by = f" by {escape(found.ended_by)}: {escape(found.ended_why or '')}" if found.ended_by else ""
        console.print(f"{found.state} {moment(found.finished_at)} UTC{by}")
    if refusals:
        table = narrow_table("refused because of", "events", "one of them", folds="one of them")
        for group in refusals:
            table.add_row(group.cause, f"{group.count:,}", escape(group.sample))
        console.print(table)
        status.print(f"Each of them: hookledger jobs items {found.id} --outcome refused")


@jobs.command()
@click.argument("job")
@click.option("--outcome", type=click.Choice([outcome.value for outcome in ItemOutcome]), help="Only those.")
@click.option("--after", type=click.UUID, help="Only after this event: for the next page.")
@click.option("--limit", default=50, type=click.IntRange(1, 1000), help="How many.")
@looks_at_inbox
@prints_json
def items(
    inbox: Inbox, job: str, outcome: str | None, after: UUID | None, limit: int, as_json: bool
) -> None:
    """List the events of a JOB, as they were frozen, and what became of each."""

    async def read() -> list[JobItem]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            wanted = ItemOutcome(outcome) if outcome else None
            return await insight.job_items(await insight.job(job), outcome=wanted, after=after, limit=limit)

    found = run(read())
    if as_json:
        print_json(found)
        return
    table = narrow_table("event", "was", "outcome", "cause", "why", folds="why")
    for item in found:
        table.add_row(str(item.event_id), item.state, item.outcome or "", item.cause or "", escape(item.words or ""))
    table_console().print(table)
    if len(found) == limit:
        status.print(f"There may be more: --after {found[-1].event_id}")


@jobs.command()
@click.argument("job")
@names_actor
@looks_at_inbox
@prints_json
def cancel(inbox: Inbox, job: str, reason: str, actor: str, as_json: bool) -> None:
    """Stop a JOB after the step that is being taken: what was done stays, the rest is not touched."""

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
    """Wait for a JOB, and run it here when no worker does."""

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
    return f"{job.per_second:g}" if job.per_second else "as many as go"
