"""Bulk jobs: preview, plan, show and cancel them. Workers run them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import asdict

from ...errors import ConfigError
from ...store.ops.filters import Filter
from ...store.ops.job import BulkAction, Decided, ItemOutcome, Job, JobItem, NotAllowedGroup, Resolving
from ..bulk import jobs
from ..bulk.plan import PER_SECOND, JobPreview, look, plan
from .call import Asked, Count, Limit, Look, Nothing, Reason, Text, Why
from .events import IN_PAYLOADS, asked_filter


class JobPreviewQuery(Filter, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A filter and an action."""

    name: BulkAction
    resolves: Text | None = None
    """For `resolve`: the name of the unknown effects to decide."""
    decision: Decided | None = None
    """For `resolve`: the outcome to record."""


class NewJob(Struct, frozen=True, forbid_unknown_fields=True):
    """One action on all events that match the filter."""

    name: BulkAction
    where: Filter
    count: Count
    """Number of events, or with `resolve` of effects, that `GET /jobs-preview` returned (`count` or `effects`): 409
    if it differs."""
    reason: Reason
    per_second: Annotated[float, Meta(ge=0, le=1_000_000)] = PER_SECOND
    """Events per second; 0: unlimited."""
    resolving: Resolving | None = None
    """Only for `resolve`: the name of the unknown effects, and the outcome to record."""
    fingerprint: Text | None = None
    """For `resolve`: the preview's `fingerprint`; 409 if the effects differ or one was called since. Without it only
    the count is compared."""


class JobView(Job, frozen=True, kw_only=True):
    """A bulk job: one action on a frozen set of events."""

    where: Filter | None  # type: ignore[assignment]
    """The filter of the set; null for a viewer if it looks into payloads."""
    open: int
    """Events that are neither done nor not allowed."""


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    before: UUID | None = None
    """Only older than this job: `next` of the previous page."""
    limit: Limit = 50


class Jobs(Struct, frozen=True):
    jobs: list[JobView]
    next: UUID | None
    """`before` for the next page; null at the end."""


class JobShown(Struct, frozen=True):
    job: JobView
    causes: list[NotAllowedGroup]
    """Events for which the action was not allowed, by cause."""
    now: dict[str, int]
    """Current states of the events it acted on; `pruned`: deleted since."""


class ItemsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    outcome: ItemOutcome | None = None
    after: UUID | None = None
    """Only after this event: `next` of the previous page."""
    limit: Limit = 50


class Items(Struct, frozen=True):
    items: list[JobItem]
    next: UUID | None
    """`after` for the next page; null at the end."""


def _view(asked: Asked[Any, Any], job: Job) -> JobView:
    is_hidden = not asked.sees_all and any(getattr(job.where, name) is not None for name in IN_PAYLOADS)
    return JobView(**{**asdict(job), "where": None if is_hidden else job.where}, open=job.open)


async def preview_job(asked: Asked[JobPreviewQuery, Nothing]) -> JobPreview:
    """Show what a job would act on if it were planned now; nothing is changed. The filters `text`, `error` and
    `cause` need the role operator."""
    query, where = asked.query, asked_filter(asked)
    resolving = None
    if query.resolves is not None and query.decision is not None:
        resolving = Resolving(query.resolves, query.decision)
    elif query.resolves is not None or query.decision is not None:
        raise ConfigError("resolves and decision are required together")
    return await look(asked.context, query.name, where, resolving)


async def make_job(asked: Asked[Nothing, NewJob]) -> JobView:
    """Plan a job: freeze the matching events; workers then retry, replay, discard or resolve each, as the single
    action would. Compares the count and, to resolve, the fingerprint if given. If the answer is lost, check `GET
    /jobs` before you send it again: else there may be two jobs."""
    new = asked.body
    job = await plan(
        asked.context,
        asked.by,
        new.name,
        new.where,
        count=new.count,
        per_second=new.per_second,
        resolving=new.resolving,
        fingerprint=new.fingerprint,
    )
    return _view(asked, job)


async def list_jobs(asked: Asked[JobsQuery, Nothing]) -> Jobs:
    """List jobs, newest first."""
    found = await jobs.jobs(asked.context, before=asked.query.before, limit=asked.query.limit)
    return Jobs([_view(asked, job) for job in found], found[-1].id if len(found) == asked.query.limit else None)


async def show_job(asked: Look) -> JobShown:
    """Show a job's progress, by id or id prefix, the current states of its events, and what was not allowed."""
    context = asked.context
    job = await jobs.find(context, asked.path["job"])
    return JobShown(_view(asked, job), await jobs.causes(context, job), await jobs.states(context, job))


async def list_job_items(asked: Asked[ItemsQuery, Nothing]) -> Items:
    """List a job's events: as frozen, what was done, and the state `now`."""
    query = asked.query
    job = await jobs.find(asked.context, asked.path["job"])
    found = await jobs.items(asked.context, job, outcome=query.outcome, after=query.after, limit=query.limit)
    return Items(found, found[-1].event_id if len(found) == query.limit else None)


async def cancel_job(asked: Asked[Nothing, Why]) -> JobView:
    """Cancel a job after its current step: actions already taken stay, the other events are not changed."""
    job = await jobs.find(asked.context, asked.path["job"])
    return _view(asked, await jobs.cancel(asked.context, asked.by, job))
