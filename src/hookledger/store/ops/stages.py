"""Stages that an operator adds to events that were processed before the application had them (decision 0056)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...errors import WrongState
from ...ids import stage_id
from ...states import State
from ..session import Operations, Row, Session, writes
from .audit import Audit, Change, record_action

ABSENT = "absent"
"""Where a stage comes from that is added."""

Claims = Sequence[tuple[UUID, int]]
"""Events, and the claim number of each when this was decided."""


class Stages(Operations):
    """`store.stages`."""

    @writes
    async def add(self, db: Session, event_id: UUID, seen: int, stage: str, actor: str, reason: str) -> UUID:
        """absent → pending, audited, for a stage that a processed event lacks; returns its id.

        `seen`: the event's claim number when this was decided. Raises WrongState if the event has changed, is not
        processed, has lost its bytes, or has this stage.
        """
        for why in (await add_stages(db, [(event_id, seen)], stage, Audit(actor, reason))).values():
            raise WrongState(why)
        return stage_id(event_id, stage)


async def add_stages(
    db: Session, events: Claims, stage: str, by: Audit, part_of: str | None = None
) -> dict[UUID, str]:
    """Add a stage to those of these events that lack it, audited; returns why the others cannot get it. The audit log
    entries name what they are `part_of`."""
    now = {row["id"]: row for row in await db("lock_events", events=[ident for ident, _ in events])}
    found = {ident: _why_not(ident, now.get(ident), seen) for ident, seen in events}
    wanted = {stage_id(ident, stage): ident for ident, why in found.items() if why is None}
    rows = await db("add_stages", stages=[(new, ident, stage) for new, ident in wanted.items()]) if wanted else []
    added = {row["id"] for row in rows}
    subject = ", ".join(filter(None, (f"stage {stage}", part_of)))
    changes = [
        Change(subject, (ABSENT, State.PENDING.value), about) for new in sorted(added) for about in (wanted[new], new)
    ]
    if changes:
        await record_action(db, "add-stage", by, *changes)
    there = {ident: f"event {ident} has stage {stage!r}: {new}" for new, ident in wanted.items() if new not in added}
    return {ident: why for ident, why in found.items() if why is not None} | there


def _why_not(event_id: UUID, row: Row | None, seen: int) -> str | None:
    if row is None:
        return f"there is no event {event_id}"
    if row["parent"] is not None:
        return f"event {event_id} is a stage itself: name its event"
    if row["claim"] != seen:
        return f"event {event_id} is {row['state']} now: it has changed"
    if row["state"] != State.PROCESSED:
        return (
            f"event {event_id} is {row['state']}: only processed events get a stage; others get theirs when processed"
        )
    if row["emptied_at"] is not None:
        return f"the bytes of event {event_id} were pruned or erased: there is nothing to process"
    return None
