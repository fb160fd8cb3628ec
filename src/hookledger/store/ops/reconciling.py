"""Comparisons with a provider's log, and repairs.

What is missing goes in as a delivery does, in one commit with the comparison's counts; nothing here is on the way of
an ack.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from ...errors import WrongState
from ...ids import new_id
from ...model import Arrival, Recorded
from ...states import DeliveryOutcome, State
from ..rows import value_of
from ..session import Operations, Row, Session, reads, writes
from .audit import Audit, Change, record_action

NEW = (DeliveryOutcome.RECONCILED, DeliveryOutcome.INVALID)
"""What an arrival from a provider's log is where it was missing."""

OPEN = (State.PENDING, State.PROCESSING, State.RETRYING, State.NEEDS_REVIEW)
"""A repair in one of these is still to come."""

INTERRUPTED = "interrupted: its process stopped"


class Known(Struct, frozen=True):
    """Who owns an identity."""

    event_id: UUID
    state: State | None
    """None where the event is known by its key alone: imported, or pruned."""


class Begun(Struct, frozen=True):
    """A comparison that this process makes; every later write names the fence."""

    id: UUID
    source: str
    fence: int
    """The fencing token: 1 for the first process, one more for each that takes it up."""
    since: datetime
    until: datetime


class Counts(Struct, frozen=True, kw_only=True):
    """What a comparison found."""

    listed: int = 0
    """Events, or changed objects, that the provider named."""
    matched: int = 0
    """Known here, and not failed."""
    missing: int = 0
    """Not known here."""
    imported: int = 0
    """Of these, recorded now."""
    repairs: int = 0
    """Of these, objects whose repair was asked for."""
    resent: int = 0
    """Of these, deliveries that the provider was asked to make again."""
    failed: int = 0
    """Known here, failed or in review."""
    unknown: int = 0
    """Here, and not in the provider's log of that time."""
    not_importable: int = 0
    """Listed, and cannot be imported: no key, say."""
    ignored: int = 0
    """Of types that the source does not accept."""

    @property
    def clean(self) -> bool:
        """Whether both sides say the same, and all went well."""
        return not (self.missing or self.failed or self.unknown or self.not_importable)

    def words(self) -> str:
        """Return them as text, for people and for the audit log."""
        names = ("imported", "repairs", "resent", "failed", "unknown", "not_importable", "ignored")
        more = [f"{getattr(self, name):,} {name.replace('_', ' ')}" for name in names if getattr(self, name)]
        return ", ".join([f"{self.listed:,} listed", f"{self.missing:,} missing", *more])


class Reconciliation(Struct, frozen=True):
    """One comparison, as it was recorded."""

    id: UUID
    source: str
    slot: datetime | None
    """The time that it was scheduled for; None if an operator asked for it."""
    since: datetime
    until: datetime
    actor: str
    reason: str
    fence: int
    started_at: datetime
    leased_until: datetime | None
    """Until then its process holds it, or it waits for its next try."""
    finished_at: datetime | None
    """None while it runs or waits for its next try, or if its process died."""
    problem: str | None
    counts: Counts | None


class Reconciling(Operations):
    """`store.reconciling`."""

    @reads
    async def known(self, db: Session, identities: Sequence[bytes]) -> dict[bytes, Known]:
        """Those of these identities that are taken, and by whom."""
        return {
            row["identity"]: value_of(Known, row) for row in await db("known_owners", identities=list(identities))
        }

    @writes
    async def begin(
        self,
        db: Session,
        source: str,
        since: datetime,
        until: datetime,
        actor: str,
        reason: str,
        *,
        lease: float,
        slot: datetime | None = None,
    ) -> Begun | None:
        """Start a comparison, audited. With a `slot`, one per slot: None if another process has it or it is finished;
        after its lease the next process takes it up, with its first window. Closes interrupted comparisons of the
        source; the audit log says how far they came."""
        await _close_abandoned(db, source, slot)
        given = {"source": source, "slot": slot, "since": since, "until": until, "lease": lease}
        for row in await db("begin_reconciliation", id=new_id(), actor=actor, reason=reason, **given):
            await _note(db, source, Audit(actor, reason), "", "started")
            return Begun(row["id"], source, row["fence"], row["since"], row["until"])
        return None

    @writes
    async def record(
        self, db: Session, begun: Begun, arrivals: Sequence[Arrival], counts: Counts
    ) -> list[list[Recorded]]:
        """Record what is missing, and what the comparison has counted with it, in one commit. `counts`: before that.
        WrongState when another has taken it up."""
        results = await db.record(arrivals)
        now = _kept(_with_recorded(counts, results))
        if not await db("count_reconciled", id=begun.id, fence=begun.fence, counts=now):
            raise taken_up(begun)
        return results

    @writes
    async def renew(self, db: Session, begun: Begun, lease: float) -> bool:
        """Renew the lease; False if another process has taken it up."""
        return bool(await db("renew_reconciliation", id=begun.id, fence=begun.fence, lease=lease))

    @writes
    async def end(
        self,
        db: Session,
        begun: Begun,
        counts: Counts,
        problem: str | None = None,
        *,
        again_in: float | None = None,
    ) -> bool:
        """Record the result, audited; False if another process has taken it up. `again_in`: it failed, and can be
        retried after so many seconds."""
        given = {"counts": _kept(counts), "problem": problem, "again_in": again_in}
        ended = await db("end_reconciliation", id=begun.id, fence=begun.fence, **given)
        words = (f"failed: {problem}; " if problem else "") + counts.words()
        for row in ended:
            await _note(db, begun.source, Audit(row["actor"], row["reason"]), "started", words)
        return bool(ended)

    @reads
    async def last(self, db: Session) -> list[Reconciliation]:
        """The last comparison of each source."""
        return [value_of(Reconciliation, row, counts=_counts(row)) for row in await db("last_reconciliations")]

    @writes
    async def repair(self, db: Session, arrival: Arrival, about: UUID | None, actor: str, reason: str) -> UUID:
        """Record an event that an operator made for the repair of its object, audited there and on the event that it
        is `about`; returns its id.

        WrongState when the last repair of the object is still to come, with its id and who asked.
        """
        [item], [event_id] = arrival.items, arrival.event_ids
        assert item.object_id is not None, "a repair is of an object"
        thing = {"source": arrival.source, "object_id": item.object_id}
        await db("claim_repair", event_id=event_id, **thing)
        [row] = await db("lock_repair", **thing)
        if (known := row["event_id"]) != event_id:
            state = await _state(db, known)
            if state in OPEN:
                raise WrongState(f"object {item.object_id!r} has a repair that is {state} already: event {known}")
            await db("change_repair", event_id=event_id, **thing)
        await db.record([arrival])
        by = Audit(actor, reason)
        subject = f"event {about}" if about else f"object {item.object_id}"
        await record_action(db, "repair", by, Change(subject, ("", "pending"), event_id))
        if about is not None:
            state = await _state(db, about)
            subject = f"repair {event_id}"
            await record_action(db, "repair", by, Change(subject, (state, state), about))
        return event_id


async def _close_abandoned(db: Session, source: str, slot: datetime | None) -> None:
    for row in await db("abandoned_reconciliations", source=source):
        counts = _counts(row) or Counts()
        if row["slot"] is None or row["slot"] != slot:  # else it is taken up
            end = {"problem": INTERRUPTED, "counts": _kept(counts), "again_in": None}
            await db("end_reconciliation", id=row["id"], fence=row["fence"], **end)
        words = f"{INTERRUPTED}; {counts.words()}"
        await _note(db, source, Audit(row["actor"], row["reason"]), "started", words)


async def _note(db: Session, source: str, by: Audit, before: str, after: str) -> None:
    await record_action(db, "reconcile", by, Change(f"source:{source}", (before, after)))


async def _state(db: Session, event_id: UUID) -> str:
    """Of one event; empty where it was pruned."""
    found = await db("event_now", event_id=event_id)
    return found[0]["state"] if found else ""


def _with_recorded(counts: Counts, results: Sequence[Sequence[Recorded]]) -> Counts:
    """Return the counts with these arrivals. One that is not new was delivered since it was listed, or its body is
    known under another id."""
    new = sum(any(one.outcome in NEW for one in became) for became in results)
    return msgspec.structs.replace(
        counts,
        missing=counts.missing + new,
        imported=counts.imported + new,
        matched=counts.matched + len(results) - new,
    )


def _kept(counts: Counts) -> str:
    return msgspec.json.encode(counts).decode()


def _counts(row: Row) -> Counts | None:
    return msgspec.json.decode(row["counts"], type=Counts) if row["counts"] else None


def taken_up(begun: Begun) -> WrongState:
    return WrongState(f"the comparison of source {begun.source!r} was taken up by another")
