"""What a store knows of its own restores from a backup."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from ..errors import WrongState
from .rows import Row, Rows

DOUBTFUL = "restored from a backup: it may have been performed since"
"""The reason of effects that were planned or started when the backup was taken."""
WORKER = "restore"
"""Who the calls are attributed to that may have been made and are not on record."""
SKIPPED = 1000
"""Generations of an effect that a deliberate repetition leaves out, for each restore: their keys may be used."""


class Restore(Struct, frozen=True):
    """One restore, and the gap between backup and restore, of which nothing is on record."""

    id: UUID
    backup_at: datetime
    restored_at: datetime
    doubted_at: datetime | None
    """When every effect that was planned or started at the backup had become unknown."""
    closed_at: datetime | None
    """When an operator said that the gap is reconciled."""


class Restores(Protocol):
    """`store.restores`."""

    async def begin(self, backup_at: datetime, actor: str, reason: str) -> Restore:
        """Open the gap, audited; or go on with the one that was begun and not doubted to its end.

        Raises WrongState when one is open that was.
        """
        ...

    async def doubt(self, restore: Restore, after: bytes, limit: int) -> tuple[int, bytes | None]:
        """planned, started → unknown, for effects whose identity comes after this one: how many, and the last.

        A planned one gets a call from the time of the backup, whose end is not known. None: there were no more.
        """
        ...

    async def doubted(self, restore: Restore) -> None:
        """That was all of them."""
        ...

    async def close(self, actor: str, reason: str) -> Restore:
        """The gap is reconciled, audited. Raises WrongState when none is open, or not doubted to its end."""
        ...

    async def gap(self) -> Restore | None:
        """The open one. None also where the schema knows of no restores."""
        ...

    async def may_be_done(self, restore: Restore, identity: bytes, generation: int, number: int) -> bool:
        """Whether this call of an effect may have been made in the gap, for all that is on record."""
        ...


def restore_of(row: Row, rows: Rows) -> Restore:
    times = (rows.when(row[name]) for name in ("backup_at", "restored_at", "doubted_at", "closed_at"))
    return Restore(rows.ident(row["id"]), *times)


def still_open(restore: Restore) -> WrongState:
    when = f"{restore.restored_at:%Y-%m-%d %H:%M} UTC"
    return WrongState(f"the restore of {when} is not closed: hookledger doctor --after-restore --done")


def not_closable(restore: Restore | None) -> WrongState:
    if restore is None:
        return WrongState("no restore is open")
    return WrongState("the restore was not prepared to its end: run hookledger doctor --after-restore again")


def words(restore: Restore) -> str:
    """As the audit log names it."""
    return f"restore of the backup of {restore.backup_at:%Y-%m-%d %H:%M:%S} UTC"
