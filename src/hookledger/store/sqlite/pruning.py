"""Retention on SQLite: transactions so small that no ack waits long for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import apsw

from ...identities import new_id
from ...retention import Arrived, Candidate, Tombstone
from ..queries import load
from ..rows import Rows
from .circuits import Run
from .connection import Row, rows
from .intake import micros

SQL = load(__package__, "pruning.sql")
START = UUID(int=0)


class SqlitePruning:
    def __init__(self, read: Run, write: Run, now: Callable[[], int], values: Rows) -> None:
        self._run = read
        self._write = write
        self._now = now
        self._rows = values

    async def _read(self, name: str, *args: Any) -> list[Row]:
        return await self._run(lambda connection: rows(connection, SQL[name], args))

    async def _change(self, name: str, *args: Any) -> list[Row]:
        return await self._write(lambda connection: rows(connection, SQL[name], args))

    @property
    def stops_others(self) -> bool:
        return True

    # ── turns and walks ──

    async def turn(self, holder: str, lease: float) -> str | None:
        if await self._change("turn", self._now(), holder, micros(lease)):
            return None
        found = await self._read("whose_turn")
        return str(found[0][0]) if found else "somebody else"

    async def end_turn(self, holder: str) -> None:
        await self._change("end_turn", holder)

    async def position(self, walk: str, again: float) -> UUID:
        found = await self._change("position", self._now(), walk, micros(again), START.bytes)
        return UUID(bytes=found[0][0])

    async def remember(self, walk: str, position: UUID) -> None:
        await self._change("remember", walk, position.bytes)

    async def events(self, after: UUID, before: UUID, limit: int) -> list[Candidate]:
        found = await self._read("window", self._now(), after.bytes, before.bytes, limit)
        return [self._rows.candidate(row) for row in found]

    async def deliveries(self, after: UUID, before: UUID, limit: int) -> list[Arrived]:
        found = await self._read("deliveries_window", self._now(), after.bytes, before.bytes, limit)
        return [self._rows.arrived(row) for row in found]

    # ── taking away ──

    async def prune(self, chosen: Sequence[Candidate], quiet: float, *, dry: bool = False) -> int:
        def job(connection: apsw.Connection) -> int:
            now, gone = self._now(), 0
            for one in chosen:
                for row in rows(connection, SQL["still"], (now, one.id.bytes, one.claim, micros(quiet))):
                    gone += 1
                    if not dry:
                        _take(connection, now, row)
            return gone

        return await self._write(job) if chosen else 0

    async def empty(self, chosen: Sequence[Candidate], older: float, *, dry: bool = False) -> int:
        def job(connection: apsw.Connection) -> int:
            now = self._now()
            emptied: set[bytes] = set()
            for one in chosen:
                beside = rows(connection, SQL["beside"], (now, one.id.bytes, micros(older)))
                if not beside or not all(row["over"] for row in beside):
                    continue
                [(made, odd)] = rows(connection, SQL["count_items"], (beside[0]["request_id"],))
                if made != len(beside) or odd:
                    continue
                emptied.update(row["id"] for row in beside)
                if not dry:
                    connection.execute(SQL["empty_request"], (now, beside[0]["request_id"]))
                    connection.executemany(SQL["empty_event"], [(now, row["id"]) for row in beside])
            return len(emptied)

        return await self._write(job) if chosen else 0

    async def forget(self, chosen: Sequence[Candidate], *, dry: bool = False) -> int:
        def job(connection: apsw.Connection) -> int:
            changed = 0
            for one in chosen:
                if dry:
                    changed += bool(rows(connection, SQL["remembered"], (one.id.bytes, one.claim)))
                    continue
                changed += bool(rows(connection, SQL["forget_attempts"], (one.id.bytes, one.claim)))
                connection.execute(SQL["trim_calls"], (one.id.bytes,))
            return changed

        return await self._write(job) if chosen else 0

    async def drop(self, duplicates: Sequence[Arrived], odd: Sequence[Arrived], *, dry: bool = False) -> int:
        def job(connection: apsw.Connection) -> int:
            dropped = 0
            for one in duplicates:
                place = (one.request_id.bytes, one.item)
                dropped += dry or bool(rows(connection, SQL["drop_duplicate"], place))
            for one in odd:
                place = (one.request_id.bytes, one.item)
                if rows(connection, SQL["orphan"], place):
                    dropped += 1
                    if not dry:
                        connection.execute(SQL["drop_odd"], place)
                        connection.execute(SQL["drop_request"], place[:1])
            return dropped

        return await self._write(job) if duplicates or odd else 0

    # ── evidence ──

    async def pruned(self, first: UUID, last: UUID) -> list[Tombstone]:
        return [self._rows.tombstone(row) for row in await self._read("pruned", first.bytes, last.bytes)]

    async def note(self, actor: str, reason: str, what: str) -> None:
        await self._change("note", self._now(), new_id().bytes, actor, reason, what)


def _take(connection: apsw.Connection, now: int, row: Row) -> None:
    """One event, with all that goes with it."""
    ident = row["id"]
    connection.execute(SQL["bury"], (now, ident))
    connection.execute(SQL["drop_attempts"], (ident,))
    connection.execute(SQL["drop_event"], (ident,))
    left = rows(connection, SQL["drop_again"], (ident,))
    left += rows(connection, SQL["drop_first"], (row["request_id"], row["item"]))
    for request_id in {gone[0] for gone in left}:
        connection.execute(SQL["drop_request"], (request_id,))
    connection.execute(SQL["trim_calls"], (ident,))
    connection.execute(SQL["trim_effects"], (ident,))
