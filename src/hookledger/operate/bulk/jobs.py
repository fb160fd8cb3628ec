"""Jobs: lists, one by its id, its events, and cancelling it."""

from __future__ import annotations

from uuid import UUID

from ...store.ops.audit import Audit
from ...store.ops.job import ItemOutcome, Job, JobItem, NotAllowedGroup
from ..context import Context
from ..errors import Ambiguous, NotFound


async def jobs(context: Context, *, before: UUID | None = None, limit: int = 50) -> list[Job]:
    """Return jobs, newest first."""
    return await context.store.jobs.jobs(before=before, limit=limit)


async def find(context: Context, reference: str) -> Job:
    """One job by id or id prefix. Raises NotFound or Ambiguous."""
    found = await context.store.jobs.find(reference)
    if len(found) > 1:
        raise Ambiguous(f"{reference!r} is ambiguous; jobs with this prefix: {', '.join(map(str, found))}")
    job = await context.store.jobs.job(found[0]) if found else None
    if job is None:
        raise NotFound(f"unknown job {reference!r}: `hookledger jobs` lists them")
    return job


async def causes(context: Context, job: Job) -> list[NotAllowedGroup]:
    """Return the events for which the action was not allowed, by cause."""
    return await context.store.jobs.causes(job.id)


async def states(context: Context, job: Job) -> dict[str, int]:
    """Count the events it acted on by their current state; `pruned`: deleted since."""
    return await context.store.jobs.present(job.id)


async def items(
    context: Context, job: Job, *, outcome: ItemOutcome | None = None, after: UUID | None = None, limit: int = 50
) -> list[JobItem]:
    """Return a job's events, ordered by id."""
    return await context.store.jobs.items(job.id, outcome=outcome, after=after, limit=limit)


async def cancel(context: Context, by: Audit, job: Job) -> Job:
    """Cancel a job after its current step; actions already taken stay."""
    return await context.store.jobs.cancel(job.id, *by)
