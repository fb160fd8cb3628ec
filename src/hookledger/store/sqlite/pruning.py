"""Retention on SQLite: transactions so small that no ack waits long for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import apsw

from ...retention import Arrived, Candidate, Pruned, Round, Tombstone, Turn
from ..pruning import INTERRUPTED, entry_of, taken_over
from ..queries import load
from ..rows import Rows
from .connection import Row, Run, rows
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

    async def turn(self, round_: Round) -> Turn:
        def job(connection: apsw.Connection) -> Turn:
            former = rows(connection, SQL["whose_turn"])
            if not rows(connection, SQL["turn"], (self._now(), round_.name, micros(round_.lease))):
                return Turn(False, *former[0])
            entry = entry_of(former[0]["holder"]) if former else None
            if entry is None or entry == round_.id:
                return Turn(True)
            closed = rows(connection, SQL["close"], (entry.bytes, INTERRUPTED))
            return Turn(True, interrupted=": ".join(closed[0]) if closed else None)

        turn: Turn = await self._write(job)
        return turn

    async def end_turn(self, round_: Round, how: str) -> None:
        def job(connection: apsw.Connection) -> None:
            connection.execute(SQL["end_turn"], (round_.name,))
            connection.execute(SQL["close"], (round_.id.bytes, how))

        await self._write(job)

    def _note(self, connection: apsw.Connection, round_: Round, step: Pruned) -> None:
        """In the transaction that takes something away."""
        now = self._now()
        if not rows(connection, SQL["hold"], (now, round_.name, micros(round_.lease))):
            raise taken_over(round_)
        values = (now, round_.id.bytes, round_.actor, round_.reason, round_.words_with(step))
        connection.execute(SQL["note"], values)

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

    async def prune(self, chosen: Sequence[Candidate], quiet: float, round_: Round | None) -> int:
        def job(connection: apsw.Connection) -> int:
            now, gone = self._now(), 0
            for one in chosen:
                for row in rows(connection, SQL["still"], (now, one.id.bytes, one.claim, micros(quiet))):
                    gone += 1
                    if round_ is not None:
                        _take(connection, now, row)
            if gone and round_ is not None:
                self._note(connection, round_, Pruned(events=gone))
            return gone

        return await self._write(job) if chosen else 0

    async def empty(self, chosen: Sequence[Candidate], older: float, round_: Round | None) -> int:
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
                if round_ is not None:
                    connection.execute(SQL["empty_request"], (now, beside[0]["request_id"]))
                    connection.executemany(SQL["empty_event"], [(now, row["id"]) for row in beside])
            if emptied and round_ is not None:
                self._note(connection, round_, Pruned(payloads=len(emptied)))
            return len(emptied)

        return await self._write(job) if chosen else 0

    async def forget(self, chosen: Sequence[Candidate], round_: Round | None) -> int:
        def job(connection: apsw.Connection) -> int:
            found = [c.id.bytes for c in chosen if rows(connection, SQL["remembered"], (c.id.bytes, c.claim))]
            if found and round_ is not None:
                for ident in found:
                    connection.execute(SQL["forget_attempts"], (ident,))
                    connection.execute(SQL["trim_calls"], (ident,))
                self._note(connection, round_, Pruned(history=len(found)))
            return len(found)

        return await self._write(job) if chosen else 0

    async def drop(self, duplicates: Sequence[Arrived], odd: Sequence[Arrived], round_: Round | None) -> int:
        def job(connection: apsw.Connection) -> int:
            dropped = 0
            for one in duplicates:
                place = (one.request_id.bytes, one.item)
                dropped += round_ is None or bool(rows(connection, SQL["drop_duplicate"], place))
            for one in odd:
                place = (one.request_id.bytes, one.item)
                if rows(connection, SQL["orphan"], place):
                    dropped += 1
                    if round_ is not None:
                        connection.execute(SQL["drop_odd"], place)
                        connection.execute(SQL["drop_request"], place[:1])
            if dropped and round_ is not None:
                self._note(connection, round_, Pruned(deliveries=dropped))
            return dropped

        return await self._write(job) if duplicates or odd else 0

    # ── evidence ──

    async def pruned(self, first: UUID, last: UUID) -> list[Tombstone]:
        return [self._rows.tombstone(row) for row in await self._read("pruned", first.bytes, last.bytes)]


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
