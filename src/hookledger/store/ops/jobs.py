"""Bulk work: one action on a frozen set of events, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from ...errors import WrongState
from ...ids import FIRST_ID, id_bounds
from ...ledger import Effect, EffectHistory
from ...states import EffectState, State
from ..call_outcome import decide
from ..history import ActionRow, AttemptRow, EventRow, Evidence
from ..rows import value_of
from ..session import Database, Operations, Row, Session, reads, scans, writes
from . import decisions
from .audit import Audit, Change, record_action
from .events import effects_of
from .filters import Filter, condition
from .job import (
    Cause,
    Decided,
    EventGroup,
    ItemOutcome,
    Job,
    JobItem,
    JobState,
    NewJob,
    NotAllowedGroup,
    Objection,
    Resolving,
    Taken,
    UnknownEffects,
    add_job,
    cannot_cancel,
    find_job,
    job_of,
    subject_of,
)
from .resolving import Resolutions
from .stages import add_stages

FREEZE = 600.0
"""Seconds that it may take: about six for a million events on an ordinary disk."""


class Jobs(Operations):
    """`store.jobs`. Nothing here is on the way of an ack."""

    def __init__(self, database: Database, ledger: Resolutions) -> None:
        super().__init__(database)
        self._ledger = ledger

    # ── planning ──

    async def breakdown(self, where: Filter, effect: str | None = None) -> list[EventGroup]:
        """What a set would consist of now, the largest group first; at most a hundred groups. `effect`: only
        events with an unknown effect of this name."""
        name = "breakdown" if effect is None else "breakdown_unknown"
        found = await self._database.scan(lambda db: db.run(*set_query(db, name, where, effect)), FREEZE)
        return [value_of(EventGroup, row, count=row["n"]) for row in found]

    async def unknown_effects(self, where: Filter, effect: str) -> UnknownEffects:
        """How many events for which the filter holds have an unknown effect of this name now, and how many such
        effects."""
        [row] = await self._database.scan(
            lambda db: db.run(*set_query(db, "size_of_set_unknown", where, effect)), FREEZE
        )
        return unknown_effects_of(row)

    async def plan(self, new: NewJob, expected: int | None) -> Job:
        """Freeze the set: exactly the events for which the filter holds at one moment, each with the state and claim
        number it has then. Audited. For `resolve`: those of them that have unknown effects of the name, each of these
        with its fence.

        Raises WrongState when there are none, or not as many as `expected`: events, or effects if those are resolved;
        or when these, or their newest calls, are others than those of the fingerprint. PostgreSQL freezes in one
        statement; SQLite reads one snapshot and writes in batches, so that no ack waits for long: a crash in between
        leaves a job without `frozen_at`, which never runs and can be cancelled.
        """

        async def work(db: Session) -> Job:
            text, values = set_query(db, *query_of("freeze", new))
            [row] = await db.run(text, {"job_id": new.id, **values})
            return await add_job(db, new, *size_of(row, new, expected), frozen=True)

        return await self._database.write(work, limit=FREEZE)

    # ── running ──

    async def take(self, worker: str, lease: float, job_id: UUID | None = None) -> Taken | None:
        """planned, running → running, with a new fence: the oldest job, or this one, that is frozen and has no
        lease."""
        if not await self._free(job_id):
            return None  # most looks find nothing, and need no write lock
        return await self._take(worker, lease, job_id)

    @reads
    async def _free(self, db: Session, job_id: UUID | None) -> bool:
        return bool(await db("free_job", id=job_id))

    @writes
    async def _take(self, db: Session, worker: str, lease: float, job_id: UUID | None) -> Taken | None:
        found = await db("take_job", id=job_id, worker=worker, lease=lease)
        return Taken(job_of(found[0]), found[0]["fence"]) if found else None

    @writes
    async def renew(self, db: Session, taken: Taken, lease: float) -> bool:
        """Renew the lease; whether the job is still ours."""
        return bool(await db("renew_job", id=taken.job.id, fence=taken.fence, lease=lease))

    @writes
    async def release(self, db: Session, taken: Taken) -> None:
        """Release the job: another worker can take it immediately."""
        await db("renew_job", id=taken.job.id, fence=taken.fence, lease=None)

    @reads
    async def open_items(self, db: Session, taken: Taken, limit: int) -> list[JobItem]:
        """Return the next events; an empty list if the job is no longer ours."""
        given = {"id": taken.job.id, "fence": taken.fence, "first": FIRST_ID, "limit": limit}
        return [_item(row) for row in await db("open_items", **given)]

    @reads
    async def evidence(self, db: Session, event_ids: Sequence[UUID]) -> list[Evidence]:
        """What a preview of these events needs; nothing of those that are gone."""
        wanted = list(event_ids)
        events = {row["id"]: row for row in await db("events_to_preview", events=wanted)}
        attempts: dict[UUID, list[AttemptRow]] = {}
        for row in await db("attempts_of_events", events=wanted):
            attempts.setdefault(row["event_id"], []).append(value_of(AttemptRow, row))
        effects: dict[UUID, list[EffectHistory]] = {}
        for effect in await effects_of(db, wanted):
            effects.setdefault(effect.event_id, []).append(EffectHistory(effect, ()))
        return [
            Evidence(
                value_of(EventRow, known), bool(known["kept"]), tuple(attempts.get(i, ())), tuple(effects.get(i, ()))
            )
            for i in wanted
            if (known := events.get(i)) is not None
        ]

    @writes
    async def step(
        self,
        db: Session,
        taken: Taken,
        items: Sequence[JobItem],
        objections: Mapping[UUID, Objection],
        lease: float,
    ) -> Job | None:
        """Apply the action to the next events, all or nothing: transitions, audit log, outcomes and the job's
        progress are one commit. The action is not allowed for events with an objection and for those that changed
        since the freeze; the outcome says what changed. If one effect of an event cannot be decided, all its effects
        stay as they are. After the last event the job is done. None if the job is no longer ours, or if these events
        are not the next.
        """
        job, first, last = taken.job, items[0].event_id, items[-1].event_id
        ours = await db("hold_job", id=job.id, fence=taken.fence)
        if not ours or (ours[0]["position_id"] is not None and first <= ours[0]["position_id"]):
            return None
        meant = [item for item in items if item.event_id not in objections]
        not_allowed = {**objections, **(await self._act(db, job, meant) if meant else {})}
        ended = [(job.id, *_ended(item, not_allowed.get(item.event_id))) for item in items]
        updated = await db("end_items", id=job.id, ended=ended, first=first, last=last)
        assert len(updated) == len(items), "an event of the job has an outcome already"
        count = sum(item.event_id in not_allowed for item in items)
        counts = {"done": len(items) - count, "not_allowed": count}
        [row] = await db("advance_job", id=job.id, position=last, **counts, lease=lease)
        return job_of(row)

    async def _act(self, db: Session, job: Job, items: Sequence[JobItem]) -> dict[UUID, Objection]:
        """Move these events; returns why some of them could not be moved."""
        if job.resolving is not None:
            return await self._resolve(db, job, job.resolving, [item.event_id for item in items])
        if job.where.lacks_stage is not None:
            return await _add_stages(db, job, job.where.lacks_stage, items)
        events = [(item.event_id, item.state, item.claim) for item in items]
        moved = await decisions.move_all(db, job.name, events, Audit(job.actor, job.reason), _part_of(job))
        return {
            event[0]: Objection(Cause.CHANGED, str(await decisions.why_not(db, job.name, event)))
            for event in events
            if event[0] not in moved
        }

    async def _resolve(
        self, db: Session, job: Job, resolving: Resolving, events: Sequence[UUID]
    ) -> dict[UUID, Objection]:
        """Decide the frozen effects of these events; returns why some of them could not be decided."""
        frozen: dict[UUID, dict[bytes, int]] = {event: {} for event in events}
        for row in await db("item_effects", id=job.id, events=list(events)):
            frozen[row["event_id"]][row["identity"]] = row["fence"]
        known = await self._ledger.lock_all(db, {i for effects in frozen.values() for i in effects})
        found: dict[UUID, Objection] = {}
        meant: list[Effect] = []
        for event, effects in frozen.items():
            if objection := objection_to(effects, known, resolving.decision):
                found[event] = with_last_action(objection, job, await decisions.find_last_action(db, event))
            else:
                meant += [known[identity] for identity in effects]
        await self._ledger.resolve_all(db, meant, resolving.decision, job.actor, job.reason, _part_of(job))
        return found

    # ── operating ──

    @writes
    async def cancel(self, db: Session, job_id: UUID, actor: str, reason: str) -> Job:
        """planned, running → cancelled, audited; its worker cannot take another step. Raises WrongState with the
        job's state and who cancelled it."""
        known = [job_of(row) for row in await db("lock_job", id=job_id)]
        if not known or not known[0].unfinished:
            raise cannot_cancel(job_id, known[0] if known else None)
        [row] = await db("cancel_job", id=job_id, actor=actor, reason=reason)
        states = (known[0].state.value, JobState.CANCELLED.value)
        await record_action(db, "cancel-job", Audit(actor, reason), Change(subject_of(job_id), states))
        return job_of(row)

    @reads
    async def jobs(self, db: Session, *, before: UUID | None = None, limit: int = 50) -> list[Job]:
        """The newest first."""
        return [job_of(row) for row in await db("list_jobs", before=before, limit=limit)]

    @reads
    async def find(self, db: Session, reference: str) -> list[UUID]:
        """Jobs with this id or beginning of an id; at most ten."""
        bounds = id_bounds(reference)
        return [row["id"] for row in await db("find_jobs", first=bounds[0], last=bounds[1])] if bounds else []

    @reads
    async def job(self, db: Session, job_id: UUID) -> Job | None:
        return await find_job(db, job_id)

    @scans()
    async def causes(self, db: Session, job_id: UUID) -> list[NotAllowedGroup]:
        """Its events for which the action was not allowed, by cause."""
        found = await db("count_not_allowed_items", id=job_id)
        return [NotAllowedGroup(Cause(row["cause"]), row["n"], row["sample"]) for row in found]

    @scans()
    async def present(self, db: Session, job_id: UUID) -> dict[str, int]:
        """How many of the events that it acted on are in each state by now, the most first; `pruned`: gone."""
        return {row["now"]: row["n"] for row in await db("present_states", id=job_id)}

    @reads
    async def items(
        self,
        db: Session,
        job_id: UUID,
        *,
        outcome: ItemOutcome | None = None,
        after: UUID | None = None,
        limit: int = 50,
    ) -> list[JobItem]:
        """Its events in the order of their ids, from after `after`."""
        page = {"id": job_id, "after": after or FIRST_ID, "limit": limit}
        if outcome is ItemOutcome.NOT_ALLOWED:
            found = await db("list_not_allowed_items", **page)
        else:
            found = await db("list_items", **page, outcome=outcome)
        return [_item(row, row["now"]) for row in found]


async def _add_stages(db: Session, job: Job, stage: str, items: Sequence[JobItem]) -> dict[UUID, Objection]:
    """Add a stage to these events; returns why some of them could not get it."""
    events = [(item.event_id, item.claim) for item in items]
    left = await add_stages(db, events, stage, Audit(job.actor, job.reason), _part_of(job))
    return {event: Objection(Cause.CHANGED, why) for event, why in left.items()}


# ── sets ──


def query_of(query: str, new: NewJob) -> tuple[str, Filter, str | None]:
    """What is to be asked about the set of a new job."""
    return (
        (query, new.where, None) if new.resolving is None else (f"{query}_unknown", new.where, new.resolving.effect)
    )


def set_query(db: Session, query: str, where: Filter, effect: str | None) -> tuple[str, dict[str, Any]]:
    """A query about the events for which the filter holds, and about their unknown effects of this name."""
    holds, values = condition(db, where)
    return db.piece(query).replace("{where}", holds), {"effect_name": effect, **values}


def size_of(row: Row, new: NewJob, expected: int | None) -> tuple[int, int | None]:
    """How many events are in a set that may be frozen, and how many effects if these are to be decided."""
    if new.resolving is None:
        return _checked(row["n"], expected), None
    found = _checked_effects(unknown_effects_of(row), expected, new.resolving.effect, new.fingerprint)
    return found.events, found.effects


def unknown_effects_of(row: Row) -> UnknownEffects:
    return UnknownEffects(row["events"], row["effects"], sha256(row["calls"].encode()).hexdigest()[:16])


def _checked(found: int, expected: int | None) -> int:
    """The size of a set that may be frozen."""
    if expected is not None and found != expected:
        says = f"{found:,} events match now, and not the {expected:,} that were agreed to"
        raise WrongState(f"{says}: nothing was planned")
    if found == 0:
        raise WrongState("no event matches: nothing was planned")
    return found


def _checked_effects(found: UnknownEffects, expected: int | None, name: str, seen: str | None) -> UnknownEffects:
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


# ── events that are not acted on ──


def objection_to(frozen: Mapping[bytes, int], known: Mapping[bytes, Effect], decision: Decided) -> Objection | None:
    """Return why these effects of one event cannot be decided. `frozen`: identities with the fences of the freeze;
    `known`: the effects now.

    A fence only increases, so a call, check, decision or erasure since the freeze shows, even if it is unknown again.
    """
    for identity, fence in frozen.items():
        effect = known.get(identity)
        if effect is None:
            return Objection(Cause.CHANGED, f"its effect {identity.hex()} is gone")
        if effect.state is not EffectState.UNKNOWN:
            words = f"effect {decisions.about(effect)} is {effect.state} now: it is no longer unknown"
            return Objection(Cause.CHANGED, words)
        if effect.fence != fence:
            again = "it was called or looked at after the set was frozen"
            words = f"effect {decisions.about(effect)} is unknown again: {again}"
            return Objection(Cause.CHANGED, words)
        try:
            decide(effect, decision)
        except WrongState as error:
            return Objection(Cause.STATE, str(error))
    return None


def with_last_action(objection: Objection, job: Job, last: ActionRow | None) -> Objection:
    """Return the objection with the event's last action, if that is newer than the job. SQLite freezes in batches, so
    the action may have come during the freeze."""
    if last is None or last.at < job.created_at:
        return objection
    return Objection(objection.cause, objection.words + decisions.last_action(last))


def _part_of(job: Job) -> str:
    """Return the job's name in the audit log entries of its events."""
    return f"job {job.id}"


def _ended(item: JobItem, objection: Objection | None) -> tuple[UUID, ItemOutcome, Cause | None, str | None]:
    if objection is None:
        return item.event_id, ItemOutcome.DONE, None, None
    return item.event_id, ItemOutcome.NOT_ALLOWED, objection.cause, objection.words


def _item(row: Row, now: str | None = None) -> JobItem:
    """`now`: the present state of its event."""
    seen = {"state": State(row["seen_state"]), "claim": row["seen_claim"]}
    return value_of(JobItem, row, **seen, words=row["reason"], now=State(now) if now else None)
