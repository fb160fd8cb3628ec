"""What operators did: every action is one row, written with what it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ...identities import new_id
from ..session import Session


class Audit(NamedTuple):
    """Who does it, and why."""

    actor: str
    reason: str


class Change(NamedTuple):
    """What an action did: it took its subject, or the event, from one state to another."""

    subject: str | None
    states: tuple[str, str]
    event_id: UUID | None = None
    action_id: UUID | None = None
    """None: a new one."""


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
    """Add an action to the audit log."""
    await record_actions(db, name, by, [Change(subject, states, event_id, action_id)])


async def record_actions(db: Session, name: str, by: Audit, changes: Sequence[Change]) -> None:
    """Add an action for each change, in one statement."""
    given = [(change.action_id or new_id(), change.event_id, change.subject, *change.states) for change in changes]
    await db("record_actions", name=name, actor=by.actor, reason=by.reason, changes=given)
