"""What a store knows of bulk work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from ..errors import WrongState
from ..filters import Filter
from ..jobs import (
    Cause,
    Decided,
    Deed,
    ItemOutcome,
    Job,
    JobItem,
    JobState,
    NewJob,
    Objection,
    Portion,
    Refusals,
    Resolving,
    Taken,
)
from ..ledger import Effect
from ..model import ActionRow, Evidence
from ..states import EffectState, State
from .ops.decisions import about, last_action
from .rows import Row, Rows
from .weigh import decide


class Doubtful(NamedTuple):
    """The size of a set whose effects are to be resolved."""

    events: int
    effects: int
    fingerprint: str
    """Of these effects, each with the number of its newest call. It is another one after each further call."""


class Jobs(Protocol):
    """`store.jobs`. Nothing here is on the way of an ack."""

    # ── planning ──
    async def breakdown(self, where: Filter, effect: str | None = None) -> list[Portion]:
        """What a set would consist of now, the largest portion first; at most a hundred portions. `effect`: only
        events with an unknown effect of this name."""
        ...

    async def doubtful(self, where: Filter, effect: str) -> Doubtful:
        """How many events for which the filter holds have an unknown effect of this name now, and how many such
        effects."""
        ...

    async def plan(self, new: NewJob, expected: int | None) -> Job:
        """Freeze the set: exactly the events for which the filter holds at one moment, each with the state and claim
        number it has then. Audited. For `resolve`: those of them that have unknown effects of the name, each of these
        with its fence.

        Raises WrongState when there are none, or not as many as `expected`: events, or effects if those are resolved;
        or when these, or their newest calls, are others than those of the fingerprint.
        PostgreSQL freezes in one statement; SQLite reads one snapshot and writes in batches, so that no ack waits for
        long: a crash in between leaves a job without `frozen_at`, which nobody runs and which can be cancelled.
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
        words say what changed. An event of which one effect cannot be decided keeps all of them as they are. After
        the last one the job is done. None when it is not ours any more, or when these
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


def checked_effects(found: Doubtful, expected: int | None, name: str, seen: str | None) -> Doubtful:
    """The same for a set whose effects are to be resolved: what is agreed to is how many effects, and if there is a
    fingerprint, these very calls."""
    if expected is not None and found.effects != expected:
        says = f"{found.effects:,} effects {name} are unknown now, and not the {expected:,} that were agreed to"
        raise WrongState(f"{says}: nothing was planned")
    if seen is not None and found.fingerprint != seen:
        says = f"the effects {name} that are unknown now, or their newest calls, are not those that were looked at"
        raise WrongState(f"{says}: nothing was planned. Look again: what you know may not be about these")
    if found.events == 0:
        raise WrongState(f"no event that matches has an effect {name} that is unknown: nothing was planned")
    return found


def against(
    frozen: Mapping[bytes, int], known: Mapping[bytes, Effect], decision: Decided
) -> Objection | None:
    """What stands against deciding these effects of one event: identities with the fences they were frozen with, and
    what is known of them now.

    A fence only grows, so whoever called, checked, decided or erased it meanwhile is noticed, be it unknown again.
    """
    for identity, fence in frozen.items():
        effect = known.get(identity)
        if effect is None:
            return Objection(Cause.CHANGED, f"its effect {identity.hex()} is not there any more")
        if effect.state is not EffectState.UNKNOWN:
            words = f"effect {about(effect)} is {effect.state} now: it is not unknown any more"
            return Objection(Cause.CHANGED, words)
        if effect.fence != fence:
            words = f"effect {about(effect)} is unknown again: it was called or looked at after the set was frozen"
            return Objection(Cause.CHANGED, words)
        try:
            decide(effect, decision)
        except WrongState as error:
            return Objection(Cause.STATE, str(error))
    return None


def said_by(objection: Objection, job: Job, last: ActionRow | None) -> Objection:
    """The same, with what was done to the event last, if that was after the job was made. SQLite takes its time to
    freeze, and whoever acted meanwhile is named, too."""
    if last is None or last.at < job.created_at:
        return objection
    return Objection(objection.cause, objection.words + last_action(last))


def resolved_facts(new: NewJob) -> tuple[str | None, str | None]:
    """The columns of a job that decides effects."""
    return (new.resolving.effect, new.resolving.decision) if new.resolving else (None, None)


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
        resolving=Resolving(row["effect"], row["decision"]) if row["decision"] else None,
        effects=row["effects"],
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


def shown_item_of(row: Row, rows: Rows) -> JobItem:
    """With the state of its event by now."""
    return msgspec.structs.replace(item_of(row, rows), now=State(row["now"]) if row["now"] else None)


def portion_of(row: Row) -> Portion:
    return Portion(row["source"], row["type"], State(row["state"]), row["n"])


def refusals_of(row: Row) -> Refusals:
    return Refusals(Cause(row["cause"]), row["n"], row["sample"])
