"""What a store knows of bulk work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from ..errors import WrongState
from ..filters import Filter
from ..jobs import Cause, Deed, ItemOutcome, Job, JobItem, JobState, NewJob, Objection, Portion, Refusals, Taken
from ..model import Evidence
from ..states import State
from .rows import Row, Rows


class Jobs(Protocol):
    """`store.jobs`. Nothing here is on the way of an ack."""

    # ── planning ──
    async def breakdown(self, where: Filter) -> list[Portion]:
        """What a set would consist of now, the largest portion first; at most a hundred portions."""
        ...

    async def plan(self, new: NewJob, expected: int | None) -> Job:
        """Freeze the set: exactly the events for which the filter holds at one moment, each with the state and claim
        number it has then. Audited.

        Raises WrongState when there are none, or not as many as `expected`. PostgreSQL freezes in one statement;
        SQLite reads one snapshot and writes in batches, so that no ack waits for long: a crash in between leaves a
        job without `frozen_at`, which nobody runs and which can be cancelled.
        """
        ...

    # ── running ──
    async def take(self, worker: str, lease: float, job_id: UUID | None = None) -> Taken | None:
        """planned, running → running, with a new fence: the oldest job, or this one, that is frozen and that nobody
        has a lease on."""
        ...

    async def renew(self, taken: Taken, lease: float) -> bool:
        """Whether the job is still ours to go on with."""
        ...

    async def release(self, taken: Taken) -> None:
        """Give it back: somebody else may go on at once."""
        ...

    async def open_items(self, taken: Taken, limit: int) -> list[JobItem]:
        """The next events; none when the job is not ours any more."""
        ...

    async def evidence(self, event_ids: Sequence[UUID]) -> list[Evidence]:
        """What a preview of these events needs; nothing of those that are gone."""
        ...

    async def step(
        self, taken: Taken, items: Sequence[JobItem], objections: Mapping[UUID, Objection], lease: float
    ) -> Job | None:
        """Act on the next events, all or nothing: their transitions, their audit, their outcomes and the job's
        progress are one commit. Those objected to are refused, and so are those that changed since the freezing; the
        words say what changed. After the last one the job is done. None when it is not ours any more, or when these
        events are not the next.
        """
        ...

    # ── operating ──
    async def cancel(self, job_id: UUID, actor: str, reason: str) -> Job:
        """planned, running → cancelled, audited; whoever runs it cannot take another step. Raises WrongState, which
        says what it is and by whom."""
        ...

    async def jobs(self, *, before: UUID | None = None, limit: int = 50) -> list[Job]:
        """The newest first."""
        ...

    async def find(self, reference: str) -> list[UUID]:
        """Jobs with this id or beginning of an id; at most ten."""
        ...

    async def job(self, job_id: UUID) -> Job | None: ...

    async def refusals(self, job_id: UUID) -> list[Refusals]:
        """Its refused events, by cause."""
        ...

    async def items(
        self, job_id: UUID, *, outcome: ItemOutcome | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[JobItem]:
        """Its events in the order of their ids, from after `after`."""
        ...


def checked(found: int, expected: int | None) -> int:
    """The size of a set that may be frozen."""
    if expected is not None and found != expected:
        says = f"{found:,} events match now, and not the {expected:,} that were agreed to"
        raise WrongState(f"{says}: nothing was planned")
    if found == 0:
        raise WrongState("no event matches: nothing was planned")
    return found


def cannot_cancel(job_id: UUID, job: Job | None) -> WrongState:
    if job is None:
        return WrongState(f"there is no job {job_id}")
    words = f"job {job_id} is {job.state}"
    if job.finished_at is not None:
        words += f" since {job.finished_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.ended_by is not None:
        words += f", by {job.ended_by} ({job.ended_why})"
    return WrongState(words)


def part_of(job: Job) -> str:
    """As the audit of each event names it."""
    return f"job {job.id}"


def subject(job_id: UUID) -> str:
    """As the audit of the job names it."""
    return f"job:{job_id}"


def filter_text(where: Filter) -> str:
    return msgspec.json.encode(where).decode()


def job_of(row: Row, rows: Rows) -> Job:
    name: Deed = row["name"]
    return Job(
        id=rows.ident(row["id"]),
        name=name,
        where=msgspec.json.decode(row["filter"], type=Filter),
        actor=row["actor"],
        reason=row["reason"],
        per_second=row["per_second"],
        state=JobState(row["state"]),
        total=row["total"],
        done=row["done"],
        refused=row["refused"],
        created_at=rows.time(row["created_at"]),
        frozen_at=rows.when(row["frozen_at"]),
        started_at=rows.when(row["started_at"]),
        finished_at=rows.when(row["finished_at"]),
        ended_by=row["ended_by"],
        ended_why=row["ended_why"],
        worker=row["worker"],
        lease_left=row["lease_left"],
    )


def item_of(row: Row, rows: Rows) -> JobItem:
    return JobItem(
        rows.ident(row["event_id"]),
        State(row["seen_state"]),
        row["seen_claim"],
        ItemOutcome(row["outcome"]) if row["outcome"] else None,
        Cause(row["cause"]) if row["cause"] else None,
        row["words"],
        rows.when(row["ended_at"]),
    )


def portion_of(row: Row) -> Portion:
    return Portion(row["source"], row["type"], State(row["state"]), row["n"])


def refusals_of(row: Row) -> Refusals:
    return Refusals(Cause(row["cause"]), row["n"], row["sample"])
