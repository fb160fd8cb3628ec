"""What operators did: every action is one row, written with what it did."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ...identities import new_id
from ..session import Session


class Audit(NamedTuple):
    """Who does it, and why."""

    actor: str
    reason: str


async def record_action(
    db: Session,
    name: str,
    by: Audit,
    *,
    subject: str | None,
    states: tuple[str, str],
    event_id: UUID | None = None,
    action_id: UUID | None = None,
) -> None:
    """Add an action to the audit log: it took its subject, or the event, from one state to another."""
    await db(
        "record_action",
        id=action_id or new_id(),
        name=name,
        actor=by.actor,
        reason=by.reason,
        subject=subject,
        event_id=event_id,
        from_state=states[0],
        to_state=states[1],
    )
