"""Bulk work: what it would be about, making it, how far it is, stopping it. Workers run it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from ...errors import ConfigError
from ...filters import Filter
from ...store.ops.job import Decided, Deed, ItemOutcome, Job, JobItem, JobState, Refusals, Resolving
from ..bulk import PER_SECOND, Prospect
from .call import Asked, Count, Limit, Look, Nothing, Reason, Text
from .circuits import Why
from .events import IN_PAYLOADS, asked_filter


class ProspectQuery(Filter, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A filter, and what is to be done."""

    name: Deed
    resolves: Text | None = None
    """For `resolve`: the name of the effect, of which those are meant that are unknown,"""
    decision: Decided | None = None
    """and what they would be decided to be."""


class NewJob(Struct, frozen=True, forbid_unknown_fields=True):
    """One action on all events for which the filter holds."""

    name: Deed
    where: Filter
    count: Count
    """How many events you mean, or to resolve how many effects, as `GET /jobs-prospect` said (`count`, or `effects`):
    refused if there are more or fewer."""
    reason: Reason
    per_second: Annotated[float, Meta(ge=0, le=1_000_000)] = PER_SECOND
    """The pace; 0: as fast as it goes."""
    resolving: Resolving | None = None
    """For `resolve`, and for nothing else: the name of the effect, of which those are meant that are unknown, and
    what they are decided to be."""
    fingerprint: Text | None = None
    """For `resolve`: `fingerprint` of the prospect; refused if one of these effects was called since, or if they are
    others. Without it the count alone is compared."""


class JobView(Struct, frozen=True):
    """Bulk work: one action on a frozen set of events."""

    id: UUID
    name: Deed
    resolving: Resolving | None
    """For `resolve` alone: which effects of its events, and what they are decided to be;"""
    effects: int | None
    """and how many these are."""
    where: Filter | None
    """What the set was made of; null for a viewer where it looks into payloads."""
    actor: str
    reason: str
    per_second: float
    """0: as fast as it goes."""
    state: JobState
    total: int
    done: int
    refused: int
    open: int
    created_at: datetime
    frozen_at: datetime | None
    """When its whole set was there; null: whoever made it did not come so far, and it is never run."""
    started_at: datetime | None
    finished_at: datetime | None
    ended_by: str | None
    ended_why: str | None
    worker: str | None
    """Who runs it, or ran it last."""
    lease_left: float
    """Seconds; 0: nobody is at it."""


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    before: UUID | None = None
    """Older than this job: `next` of the page before."""
    limit: Limit = 50


class Jobs(Struct, frozen=True):
    jobs: list[JobView]
    next: UUID | None
    """`before` of the next page; null at the end."""


class JobShown(Struct, frozen=True):
    job: JobView
    refusals: list[Refusals]
    """Its refused events, by cause."""
    now: dict[str, int]
    """How many of the events that it acted on are in each state by now; `pruned`: gone."""


class ItemsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    outcome: ItemOutcome | None = None
    after: UUID | None = None
    """After this event: `next` of the page before."""
    limit: Limit = 50


class Items(Struct, frozen=True):
    items: list[JobItem]
    next: UUID | None
    """`after` of the next page; null at the end."""


def _view(asked: Asked[Any, Any], job: Job) -> JobView:
    shown = {name: getattr(job, name) for name in JobView.__struct_fields__}
    if not asked.sees_all and any(getattr(job.where, name) is not None for name in IN_PAYLOADS):
        shown["where"] = None
    return JobView(**shown)


async def foresee_job(asked: Asked[ProspectQuery, Nothing]) -> Prospect:
    """What a job would be about, if it were made now; nothing is changed. The filters `text`, `error` and `cause`
    need the role operator."""
    query, where = asked.query, asked_filter(asked)
    resolving = None
    if query.resolves is not None and query.decision is not None:
        resolving = Resolving(query.resolves, query.decision)
    elif query.resolves is not None or query.decision is not None:
        raise ConfigError("resolves and decision go together")
    return await asked.insight.prospect(query.name, where, resolving)


async def make_job(asked: Asked[Nothing, NewJob]) -> JobView:
    """Freeze the events that are meant, and leave it to the workers to retry, replay or discard each, or to resolve
    its effects, as the single action would. It compares the count, and to resolve also the fingerprint, if there is
    one: after an answer that was lost, look at `GET /jobs` before you send it again, or there may be two."""
    new = asked.body
    job = await asked.actions.plan_job(
        new.name,
        new.where,
        new.reason,
        count=new.count,
        per_second=new.per_second,
        resolving=new.resolving,
        fingerprint=new.fingerprint,
    )
    return _view(asked, job)


async def list_jobs(asked: Asked[JobsQuery, Nothing]) -> Jobs:
    """Bulk work, the newest first."""
    found = await asked.insight.jobs(before=asked.query.before, limit=asked.query.limit)
    return Jobs([_view(asked, job) for job in found], found[-1].id if len(found) == asked.query.limit else None)


async def show_job(asked: Look) -> JobShown:
    """How far one job is, by id or the beginning of one, what its events are now, and why some were refused."""
    job, insight = await asked.insight.job(asked.path["job"]), asked.insight
    return JobShown(_view(asked, job), await insight.job_refusals(job), await insight.job_states(job))


async def list_job_items(asked: Asked[ItemsQuery, Nothing]) -> Items:
    """The events of a job as they were frozen, and what became of each: `now` is the state of the event by now."""
    query = asked.query
    job = await asked.insight.job(asked.path["job"])
    found = await asked.insight.job_items(job, outcome=query.outcome, after=query.after, limit=query.limit)
    return Items(found, found[-1].event_id if len(found) == query.limit else None)


async def cancel_job(asked: Asked[Nothing, Why]) -> JobView:
    """Stop a job after the step that is being taken: what was done stays, the rest is not touched."""
    job = await asked.insight.job(asked.path["job"])
    return _view(asked, await asked.actions.cancel_job(job, asked.body.reason))
