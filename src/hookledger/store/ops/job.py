"""Bulk work: a job, its events and how each ended."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from ...errors import WrongState
from ...states import State
from ..rows import value_of
from ..session import Row, Session
from .audit import Audit, Change, record_action
from .filters import Filter, Words, check_words, written

BulkAction = Literal["retry", "replay", "discard", "resolve"]
"""What a job does to each of its events: as the single action does it."""
Decided = Literal["happened", "did_not_happen"]


class Resolving(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome that an operator found out for all unknown effects of one name."""

    effect: Words
    """Its name."""
    decision: Decided

    def __post_init__(self) -> None:
        check_words("the effect's name", self.effect)

    @property
    def words(self) -> str:
        return f"{self.effect} {self.decision.replace('_', ' ')}"


class JobState(StrEnum):
    """The state of a job."""

    PLANNED = "planned"
    """Not started; it can start once its whole set is frozen."""

    RUNNING = "running"
    """A worker with a lease runs it; after the lease has expired, another worker may."""

    DONE = "done"
    """The action was applied to each of its events, or was not allowed."""

    CANCELLED = "cancelled"
    """Stopped by an operator; what was done stays, the other events are unchanged."""


OPEN_JOBS = frozenset({JobState.PLANNED, JobState.RUNNING})


class ItemOutcome(StrEnum):
    """What became of one event of a job."""

    DONE = "done"
    NOT_ALLOWED = "not_allowed"


class Cause(StrEnum):
    """Why the action was not allowed for an event of a job."""

    STATE = "state"
    """It has not changed, and the action is not allowed in its state."""

    CHANGED = "changed"
    """It has changed since the set was frozen."""

    DECISION = "decision"
    """A replay needs an operator's decision first."""


class BulkWork(Struct, frozen=True, kw_only=True):
    """One action on events."""

    id: UUID
    name: BulkAction
    where: Filter
    """Which events."""
    actor: str
    reason: str
    per_second: float
    """0: unlimited."""
    resolving: Resolving | None = None
    """For `resolve` alone: which effects of its events, and what they are decided to be."""


class NewJob(BulkWork, frozen=True, kw_only=True):
    """What is to be done, before it is known to what."""

    fingerprint: str | None = None
    """For `resolve`: of the calls that were looked at: others are not decided. None: whichever are unknown by now."""


class Job(BulkWork, frozen=True, kw_only=True):
    """Bulk work on a frozen set of events."""

    effects: int | None
    """For `resolve` alone: how many effects its events have that are decided."""
    state: JobState
    total: int
    done: int
    not_allowed: int
    created_at: datetime
    frozen_at: datetime | None
    """When its set was complete; None: planning was interrupted, and the job never runs."""
    started_at: datetime | None
    finished_at: datetime | None
    cancelled_by: str | None
    """Who cancelled it,"""
    cancel_reason: str | None
    """and why."""
    worker: str | None
    """The worker that runs it or ran it last."""
    lease_left: float
    """Seconds; 0: no worker runs it."""

    @property
    def open(self) -> int:
        return self.total - self.done - self.not_allowed

    @property
    def what(self) -> str:
        """What it does, in words."""
        return f"{self.name}: {self.resolving.words}" if self.resolving else self.name

    @property
    def unfinished(self) -> bool:
        return self.state in OPEN_JOBS


class Taken(Struct, frozen=True):
    """A worker's right to run a job."""

    job: Job
    fence: int
    """The fencing token: every step names it."""


class JobItem(Struct, frozen=True):
    """One event of a job, as it was when the set was frozen, and what became of it."""

    event_id: UUID
    state: State
    claim: int
    outcome: ItemOutcome | None = None
    cause: Cause | None = None
    words: str | None = None
    """Why the action was not allowed."""
    ended_at: datetime | None = None
    now: State | None = None
    """The state of the event by now; None: it is pruned."""


class Objection(Struct, frozen=True):
    """Why an event of a job is not acted on."""

    cause: Cause
    words: str


class NotAllowedGroup(Struct, frozen=True):
    """The events of a job for which the action was not allowed, of one cause."""

    cause: Cause
    count: int
    sample: str
    """The words of one of them."""


class EventGroup(Struct, frozen=True):
    """How many events of a set have source, type and state in common."""

    source: str
    type: str
    state: State
    count: int


class UnknownEffects(NamedTuple):
    """The size of a set whose effects are to be resolved."""

    events: int
    effects: int
    fingerprint: str
    """Of these effects, each with the number of its newest call. It is another one after each further call."""


async def add_job(db: Session, new: NewJob, total: int, effects: int | None, *, frozen: bool) -> Job:
    """A job with so many events, and effects if these are to be decided, audited; whether they are there already."""
    facts = {name: getattr(new, name) for name in ("id", "name", "actor", "reason", "per_second")}
    resolving = new.resolving
    [row] = await db(
        "add_job",
        **facts,
        filter=written(new.where),
        total=total,
        frozen=frozen,
        effect=resolving.effect if resolving else None,
        decision=resolving.decision if resolving else None,
        effects=effects,
    )
    by, states = Audit(new.actor, new.reason), ("absent", JobState.PLANNED.value)
    await record_action(db, f"bulk {new.name}", by, Change(subject_of(new.id), states))
    return job_of(row)


async def find_job(db: Session, job_id: UUID) -> Job | None:
    found = await db("find_job", id=job_id)
    return job_of(found[0]) if found else None


def cannot_cancel(job_id: UUID, job: Job | None) -> WrongState:
    if job is None:
        return WrongState(f"there is no job {job_id}")
    words = f"job {job_id} is {job.state}"
    if job.finished_at is not None:
        words += f" since {job.finished_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.cancelled_by is not None:
        words += f", by {job.cancelled_by} ({job.cancel_reason})"
    return WrongState(words)


def job_of(row: Row) -> Job:
    resolving = Resolving(row["effect"], row["decision"]) if row["decision"] else None
    return value_of(Job, row, resolving=resolving, where=msgspec.json.decode(row["filter"], type=Filter))


def subject_of(job_id: UUID) -> str:
    """Return the job's name in the audit log."""
    return f"job:{job_id}"
