"""Pauses: what workers leave alone for now.

A claim looks at them itself, so a pause holds for every claim that begins after it; what is being processed
finishes. Deliveries are accepted all the same.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ...errors import WrongState
from ..rows import value_of
from ..session import Operations, Session, reads, writes
from .audit import Audit, Change, record_action


class Pause(Struct, frozen=True):
    """Workers claim nothing of these types until it is resumed. Deliveries are accepted all the same."""

    source: str
    pattern: str
    """An exact type, or one that ends in `*`; `*` for the whole source."""
    since: datetime
    actor: str
    reason: str


class Pauses(Operations):
    """`store.pauses`."""

    @writes
    async def pause(self, db: Session, source: str, pattern: str, actor: str, reason: str) -> Pause:
        """Claim nothing of these types, audited. Raises WrongState, which says who paused them and why, when exactly
        these are paused already."""
        made = await db("pause", source=source, pattern=pattern, actor=actor, reason=reason)
        if not made:
            for known in [value_of(Pause, row) for row in await db("list_pauses")]:
                if (known.source, known.pattern) == (source, pattern):
                    by = f"by {known.actor} since {known.since:%Y-%m-%d %H:%M:%S} UTC ({known.reason})"
                    raise WrongState(f"{describe(source, pattern)} is paused already, {by}")
            raise _not_paused(source, pattern)  # resumed just now
        await record_action(db, "pause", Audit(actor, reason), Change(describe(source, pattern), ("open", "paused")))
        return value_of(Pause, made[0])

    @writes
    async def resume(self, db: Session, source: str, pattern: str, actor: str, reason: str) -> None:
        """End a pause, audited. Raises WrongState when exactly these types are not paused."""
        if not await db("resume", source=source, pattern=pattern):
            raise _not_paused(source, pattern)
        await record_action(db, "resume", Audit(actor, reason), Change(describe(source, pattern), ("paused", "open")))

    @reads
    async def pauses(self, db: Session) -> list[Pause]:
        return [value_of(Pause, row) for row in await db("list_pauses")]


def describe(source: str, pattern: str) -> str:
    """As people and the audit log name it."""
    return f"source {source}" if pattern == "*" else f"source {source}, type {pattern}"


def _not_paused(source: str, pattern: str) -> WrongState:
    return WrongState(f"{describe(source, pattern)} is not paused: `hookledger pause --list` lists pauses")
