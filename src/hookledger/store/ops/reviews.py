"""Approve, reject and settle: what operators answer to an event in review, each one transaction, audited in it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ...errors import WrongState
from ...ids import new_id
from ...states import BY_NAME, State
from ..session import Operations, Session, reads, writes
from .audit import Audit, Change, record_action
from .decisions import why_not

QUERIES = {"approve": "approve", "reject": "reject", "settle": "settle_by_hand"}
"""The query of each answer."""
ANSWERS = tuple(QUERIES)
"""The names of the actions that answer a review."""


class Approval(Struct, frozen=True):
    """An operator let the event pass its review, for this run."""

    by: str
    """Who approved it."""
    at: datetime
    reason: str


class Reviews(Operations):
    """`store.reviews`.

    An answer names the review that it answers: `seen` is the claim number that the event had when the operator read
    it. Each raises WrongState if the event has left that review, also if it has another one; then nothing is changed.
    The audit log entry has the claim of the attempt that asked for the review, and its reason.
    """

    @reads
    async def approval(self, db: Session, approval_id: UUID) -> Approval | None:
        """Who approved a run, when and why; None if the audit log has no such entry."""
        for row in await db("approval", approval_id=approval_id):
            return Approval(row["actor"], row["at"], row["reason"])
        return None

    @reads
    async def settled_by_hand(self, db: Session, event_id: UUID) -> bool:
        """Whether an event is processed because an operator settled it."""
        return bool(await db("settled_by_hand", event_id=event_id))

    @writes
    async def approve(
        self, db: Session, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int
    ) -> int:
        """needs_review → pending, as a new run; returns its number.

        The approval is the audit log entry. It holds for that run, through its retries and crashes, until the run
        ends or has another review.
        """
        return await _answer(db, "approve", (event_id, expected, seen), Audit(actor, reason))

    @writes
    async def reject(
        self, db: Session, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int
    ) -> None:
        """needs_review → discarded. Its effects stay as they are."""
        await _answer(db, "reject", (event_id, expected, seen), Audit(actor, reason))

    @writes
    async def settle(
        self, db: Session, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int
    ) -> None:
        """needs_review → processed, without a run: it was settled by hand. Its effects stay as they are."""
        await _answer(db, "settle", (event_id, expected, seen), Audit(actor, reason))


async def _answer(db: Session, name: str, event: tuple[UUID, State, int], by: Audit) -> int:
    """Make the transition and its audit log entry; returns the event's run."""
    event_id, expected, seen = event
    given = {"event_id": event_id, "seen": seen}
    found = await db("review_seen", **given) if expected is State.NEEDS_REVIEW else []
    action = new_id()
    moved = await db(QUERIES[name], **given, action_id=action, reason=by.reason) if found else []
    if not moved:
        raise await _why_not(db, name, event)
    run: int = moved[0]["run"]
    begun = [f"run {run}"] if name == "approve" else []
    states = (State.NEEDS_REVIEW.value, BY_NAME[name].target.value)
    change = Change(", ".join([*begun, f"review at {review_place(seen)}"]), states, event_id, action)
    await record_action(db, name, by, change)
    # Where an erasure finds it: a reason may quote the payload.
    await db("keep_replaced", id=action, replaced=found[0]["reason"].encode("utf-8", "replace"))
    return run


async def _why_not(db: Session, name: str, event: tuple[UUID, State, int]) -> WrongState:
    error = await why_not(db, name, event)
    for row in await db("review_now", event_id=event[0]):
        if row["claim"] != event[2]:
            return WrongState(f"{error}. Its review now, at {review_place(row['claim'])}: {row['reason']}")
    return error


def review_place(claim: int) -> str:
    """Return where an event with this claim number came into review: at the claim of an attempt, or at intake."""
    return f"claim {claim - 1}" if claim else "intake"
