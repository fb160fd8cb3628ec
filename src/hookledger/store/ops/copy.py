"""A copy of the whole inbox to another database: the mark on each side, and the rows (decision 0048).

The source decides. Its one commit from `moving` to `moved` names the target that may become complete, and its one
commit from `moving` to `abandoning` says that none ever will; so whatever dies between the commits of two databases,
at most one of them can be written.

    source   (none) ──▶ moving ──▶ moved                  target   (none) ──▶ incomplete ──▶ complete
                          └─────▶ abandoning ──▶ (none)                          └─────────▶ abandoned

In each state but `complete` every write to the tables fails, in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec import Struct

from ...errors import WrongState
from ...ids import new_id
from ..rows import value_of
from ..session import Database, Operations, Session, reads, scans, writes, writes_lightly
from ..tables import Table, Tables, Values
from .audit import Audit, Change, record_action


class CopyState(StrEnum):
    """What this inbox is in a copy."""

    MOVING = "moving"
    """The source; its rows are being copied."""
    ABANDONING = "abandoning"
    """The source; the target will never be complete."""
    MOVED = "moved"
    """The source, for good: the target has every row."""
    INCOMPLETE = "incomplete"
    """The target; rows may be missing."""
    ABANDONED = "abandoned"
    """The target, for good."""
    COMPLETE = "complete"
    """The target; it is an inbox like any other."""


_MESSAGES = {
    CopyState.MOVING: "is being moved to another database: {}; `hookledger copy` with the same --to resumes that, "
    "--abandon ends it",
    CopyState.ABANDONING: "is being moved to another database: {}; run `hookledger copy --abandon` again to end that",
    CopyState.MOVED: "was moved to another database: {}; use that one",
    CopyState.INCOMPLETE: "is an incomplete copy of another database: {}; `hookledger copy` there completes it",
    CopyState.ABANDONED: "is an abandoned copy of another database: {}; drop it",
    CopyState.COMPLETE: "is a complete copy of another database: {}",
}
FORBIDDEN = "this inbox "
"""The prefix of the error of a write that a copy forbids."""
LONG = 6 * 3600.0
"""Seconds that counting all rows may take. Nothing waits for it: writes are forbidden."""


class Copy(Struct, frozen=True):
    """The copy that an inbox is the source or the target of."""

    id: UUID
    state: CopyState
    other: str
    """The other database, without its password."""
    message: str
    """The error of a write."""
    target_id: UUID | None
    """Tells this target from every other; in the source: the one that may become complete."""
    position: bytes | None
    """The last row that the target has."""


class Position(Struct, frozen=True, array_like=True):
    """The last row that was copied."""

    table: str
    key: Values


def message(state: CopyState, other: str) -> str:
    return FORBIDDEN + _MESSAGES[state].format(other)


class Copies(Operations):
    """`store.copies`."""

    def __init__(self, database: Database, tables: Tables) -> None:
        super().__init__(database)
        self._tables = tables

    # ── both sides ──

    @reads
    async def state(self, db: Session) -> Copy | None:
        return await _state(db)

    @reads
    async def tables(self, db: Session) -> list[Table]:
        """Every table that is copied."""
        return await self._tables.describe(db)

    @scans(LONG)
    async def totals(self, db: Session) -> dict[str, int]:
        """The rows of each table."""
        return {table.name: await self._tables.count(db, table) for table in await self._tables.describe(db)}

    # ── the source ──

    @writes
    async def move(self, db: Session, target: str, by: Audit) -> Copy:
        """(none) → moving, audited: every write fails from now on.

        Raises WrongState while a worker may be at an event or an effect.
        """
        known = await _state(db)
        if known is not None and known.state is not CopyState.COMPLETE:
            raise WrongState(known.message)
        await _require_idle(db)  # before anything is locked
        copy_id = new_id()
        await self._forbid(db, CopyState.MOVING, copy_id, target, None)
        await _require_idle(db)
        await record_action(db, "copy", by, Change(f"copy to {target}", ("open", CopyState.MOVING)))
        await db("write_as_copy", writing=False)
        return await _locked(db, copy_id)

    @reads
    async def read(self, db: Session, table: Table, after: Values | None, rows: int, size: int) -> list[Values]:
        """The next rows in the order of keys."""
        return await self._tables.read(db, table, after, rows, size)

    @writes
    async def moved(self, db: Session, copy: Copy, target_id: UUID) -> None:
        """moving → moved, for good: this target may become complete, and no other."""
        known = await _locked(db, copy.id)
        if known.state is CopyState.MOVED and known.target_id == target_id:
            return
        if known.state is not CopyState.MOVING:
            raise WrongState(known.message)
        await self._change(db, known, CopyState.MOVED, target_id)

    @writes
    async def abandon(self, db: Session, target: str) -> Copy:
        """moving → abandoning: no target of this copy can become complete."""
        await db("lock_copy")
        known = await _state(db)
        if known is None or known.state not in (CopyState.MOVING, CopyState.ABANDONING):
            raise WrongState(known.message if known else "this inbox is not being copied")
        if known.other != target:
            raise WrongState(f"this inbox is being copied to {known.other}, not to {target}: give that one with --to")
        if known.state is CopyState.MOVING:
            await self._change(db, known, CopyState.ABANDONING, None)
        return known

    @writes
    async def reopen(self, db: Session, copy: Copy, by: Audit) -> None:
        """abandoning → (none), audited: the source can be written as before."""
        known = await _locked(db, copy.id)
        if known.state is not CopyState.ABANDONING:
            raise WrongState(known.message)
        await self._tables.allow(db)
        await db("forget_copy")
        await record_action(db, "copy", by, Change(f"copy to {copy.other}", (CopyState.MOVING, "open")))

    # ── the target ──

    @writes
    async def receive(self, db: Session, copy: Copy, source: str) -> Copy:
        """(none) → incomplete: no write but those of this copy. Returns what it is where that was done before.

        Raises WrongState unless it is empty or a part of this very copy.
        """
        known = await _state(db)
        if known is not None and known.id == copy.id:
            return known
        if known is not None:
            raise WrongState(f"the target cannot be used: {known.message}")
        await self._forbid(db, CopyState.INCOMPLETE, copy.id, source, new_id())
        for table in await self._tables.describe(db):
            if await self._tables.read(db, table, None, 1, 1):
                raise not_empty(table.name)
        await db("write_as_copy", writing=False)
        return await _locked(db, copy.id)

    @writes_lightly
    async def write(
        self, db: Session, target: Copy, table: Table, rows: Sequence[Values], position: Position
    ) -> Copy:
        """Add the rows that come after those which the target has; it, with its new position."""
        encoded = msgspec.msgpack.encode(position)
        given = {"id": target.id, "target_id": target.target_id, "before": target.position}
        if not await db("advance_copy", **given, position=encoded, writing=True):
            raise WrongState("another process is at this copy, or it was abandoned: run `hookledger copy` again")
        await self._tables.insert(db, table, rows)
        await db("write_as_copy", writing=False)
        return msgspec.structs.replace(target, position=encoded)

    @writes
    async def analyze(self, db: Session) -> None:
        """Let the database count what it plans queries by."""
        await self._tables.analyze(db)

    @writes
    async def complete(self, db: Session, target: Copy, by: Audit) -> None:
        """incomplete → complete, audited: it can be written from now on."""
        known = await _locked(db, target.id)
        if known.state is CopyState.COMPLETE:
            return
        if known.state is not CopyState.INCOMPLETE or known.target_id != target.target_id:
            raise WrongState(known.message)
        await self._change(db, known, CopyState.COMPLETE, known.target_id)
        states = (CopyState.INCOMPLETE, CopyState.COMPLETE)
        await record_action(db, "copy", by, Change(f"copy from {known.other}", states))

    @writes
    async def give_up(self, db: Session, copy: Copy) -> bool:
        """incomplete → abandoned, for good; whether it was a part of this copy."""
        await db("lock_copy")
        known = await _state(db)
        if known is None or known.id != copy.id or known.target_id is None:
            return False
        if known.state is CopyState.INCOMPLETE:
            await self._change(db, known, CopyState.ABANDONED, known.target_id)
        return True

    async def _forbid(self, db: Session, state: CopyState, copy_id: UUID, other: str, target_id: UUID | None) -> None:
        """From here on this transaction alone can write, until it says that it does not."""
        said = message(state, other)
        given = {"id": copy_id, "state": state, "other": other, "message": said, "target_id": target_id}
        if not await db("begin_copy", **given, writing=True):
            raise WrongState("another copy began at the same time: run `hookledger copy` again")
        await self._tables.forbid(db, said)

    async def _change(self, db: Session, known: Copy, state: CopyState, target_id: UUID | None) -> None:
        said = message(state, known.other)
        await db("change_copy", state=state, message=said, target_id=target_id)
        if state is CopyState.COMPLETE:
            await self._tables.allow(db)
        else:
            await self._tables.say(db, said)


def last_row(copy: Copy) -> Position | None:
    """The last row that a target has."""
    return None if copy.position is None else msgspec.msgpack.decode(copy.position, type=Position)


async def _state(db: Session) -> Copy | None:
    found = await db("copy_state")
    return value_of(Copy, found[0]) if found else None


async def _locked(db: Session, copy_id: UUID) -> Copy:
    """The copy of this id, locked until the end of the transaction."""
    await db("lock_copy")
    known = await _state(db)
    if known is None or known.id != copy_id:
        raise WrongState("this copy is over: it was abandoned")
    return known


async def _require_idle(db: Session) -> None:
    [held] = await db("held_by_workers")
    if held["events"] or held["effects"]:
        raise WrongState(
            f"{held['events']:,} events are processing and {held['effects']:,} effects are started: stop all "
            "workers, which finish those first, and run this again; a running worker reclaims what a killed one left"
        )


def not_empty(table: str) -> WrongState:
    return WrongState(f"the target is not empty: its table {table} has rows; give an empty database")
