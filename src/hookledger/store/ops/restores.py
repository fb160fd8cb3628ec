"""Restores of the database from a backup."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ...errors import WrongState
from ...ids import new_id
from ...states import EffectState
from ..rows import value_of
from ..session import Database, Operations, Session, reads, writes
from .audit import Audit, Change, record_action
from .resolving import Resolutions

MAY_HAVE_HAPPENED = "restored from a backup: it may have been performed since"
"""The reason of effects that were planned or started when the backup was taken."""
WORKER = "restore"
"""Who the calls are attributed to that may have been made and are not on record."""

TICKETS = 2**32
"""Tickets that may have been given out since the backup, at most: a handler may have written one elsewhere."""


class Restore(Struct, frozen=True):
    """One restore, and the gap between backup and restore, of which nothing is on record."""

    id: UUID
    backup_at: datetime
    restored_at: datetime
    marked_at: datetime | None
    """When every effect that was planned or started at the backup had become unknown."""
    closed_at: datetime | None
    """When an operator said that the gap is reconciled."""


class Restores(Operations):
    """`store.restores`."""

    def __init__(self, database: Database, ledger: Resolutions) -> None:
        super().__init__(database)
        self._ledger = ledger

    @writes
    async def begin(self, db: Session, backup_at: datetime, actor: str, reason: str) -> Restore:
        """Open the gap, audited; or return the open one if not all of its effects are marked unknown yet.

        Raises WrongState if one is open and all of its effects are marked.
        """
        await db("lock_restores")
        known = await _open(db)
        if known is not None and known.marked_at is not None:
            when = f"{known.restored_at:%Y-%m-%d %H:%M} UTC"
            raise WrongState(f"the restore of {when} is not closed: hookledger doctor --after-restore --done")
        if known is not None:
            return known
        [row] = await db("add_restore", id=new_id(), backup_at=backup_at)
        await db("draw_tickets", count=TICKETS)
        restore = value_of(Restore, row)
        await record_action(db, "restore", Audit(actor, reason), Change(words(restore), ("closed", "open")))
        return restore

    @writes
    async def mark_unknown(self, db: Session, restore: Restore, after: bytes, limit: int) -> tuple[int, bytes | None]:
        """planned, started → unknown, for effects whose identity comes after this one: how many, and the last.

        A planned one gets a call from the time of the backup, whose end is not known. None: there were no more.
        """
        found = await db("restored_effects", after=after, limit=limit, restored_at=restore.restored_at)
        if not found:
            return 0, None
        await db("mark_restored_unknown", identities=[row["identity"] for row in found], error=MAY_HAVE_HAPPENED)
        calls = [
            (row["identity"], row["number"] + 1, row["generation"])
            for row in found
            if row["state"] == EffectState.PLANNED.value
        ]
        await db("add_unknown_calls", calls=calls, worker=WORKER, backup_at=restore.backup_at)
        await self._ledger.follow(db, {row["event_id"] for row in found})
        return len(found), found[-1]["identity"]

    @writes
    async def marked(self, db: Session, restore: Restore) -> None:
        """Record that all effects of the backup are marked."""
        await db("restore_marked", id=restore.id)

    @writes
    async def close(self, db: Session, actor: str, reason: str) -> Restore:
        """The gap is reconciled, audited. Raises WrongState if none is open, or not all of its effects are marked
        unknown."""
        closed = await db("close_restore")
        if not closed:
            if await _open(db) is None:
                raise WrongState("no restore is open")
            raise WrongState("the restore was not prepared to its end: run hookledger doctor --after-restore again")
        restore = value_of(Restore, closed[0])
        await record_action(db, "restore", Audit(actor, reason), Change(words(restore), ("open", "closed")))
        return restore

    @reads
    async def gap(self, db: Session) -> Restore | None:
        """Return the open restore."""
        return await _open(db)

    @reads
    async def may_be_done(self, db: Session, restore: Restore, identity: bytes, generation: int, number: int) -> bool:
        """Whether this call of an effect may have been made in the gap, for all that is on record."""
        call = {"identity": identity, "generation": generation, "number": number}
        [row] = await db("may_be_done", **call, restored_at=restore.restored_at)
        return bool(row["may"])


async def _open(db: Session) -> Restore | None:
    found = await db("open_restore")
    return value_of(Restore, found[0]) if found else None


def words(restore: Restore) -> str:
    """As the audit log names it."""
    return f"restore of the backup of {restore.backup_at:%Y-%m-%d %H:%M:%S} UTC"
