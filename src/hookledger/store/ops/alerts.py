"""Alerts: events that an operator should look at because of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ..session import Operations, Row, Session, reads, writes
from .audit import Audit, Change, record_action


class Alerts(Operations):
    """`store.alerts`."""

    @reads
    async def again(self, db: Session, event_ids: Sequence[UUID]) -> dict[UUID, int]:
        """How many deliveries came of each of these events after its first, counted up to 1,000."""
        ids = [(event_id,) for event_id in set(event_ids)]
        return {row["id"]: row["n"] for row in await db("count_again", ids=ids)}

    @writes
    async def alert(self, db: Session, event_id: UUID, words: str) -> bool:
        """Mark an event that is failed, retrying, processing or in review, audited; False if it has a mark or another
        state. Processing, skipping or discarding the event removes the mark, and so do retry and replay by an
        operator."""
        return await _noted(db, event_id, words, await db("mark_alert", id=event_id, words=words))

    @writes
    async def warn(self, db: Session, event_id: UUID, words: str) -> bool:
        """Record a quarantined delivery in the audit log of the event that it met, in any state; False if the same
        words are recorded."""
        return await _noted(db, event_id, words, await db("state_to_warn", id=event_id, words=words))


async def _noted(db: Session, event_id: UUID, words: str, found: list[Row]) -> bool:
    for row in found:
        by, states = Audit("hookledger", words), (row["state"], row["state"])
        await record_action(db, "alert", by, Change(None, states, event_id))
    return bool(found)
