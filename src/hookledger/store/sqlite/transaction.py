"""A handler's transaction on SQLite: begun late, limited hard, because a writer blocks every ack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from ...errors import ClaimLost, HandlerCommitted, TransactionTooLong
from ...model import Outcome
from .connection import Row, Writer, rows

Settle = Callable[[apsw.Connection, Sequence[Outcome]], int]


class SqliteTransaction:
    """Holds the process' turn to write from the first statement to the end."""

    def __init__(self, writer: Writer, turn: asyncio.Lock, settle: Settle) -> None:
        self._writer = writer
        self._turn = turn
        self._settle = settle
        self._begun = False
        self._over: Exception | None = None
        self._beginning = asyncio.Lock()

    @property
    def begun(self) -> bool:
        return self._begun

    async def _run(self, job: Callable[[apsw.Connection], Any]) -> Any:
        if self._over is not None:
            raise self._over
        async with self._beginning:  # a handler may gather several statements
            if not self._begun:
                await self._begin()

        def mine(connection: apsw.Connection) -> Any:
            self._writer.check_holder(self)
            return job(connection)

        return await self._writer.run_job(mine)

    async def _begin(self) -> None:
        await self._turn.acquire()
        if self._over is not None:  # rolled back while we queued: nobody would give the turn back
            self._turn.release()
            raise self._over
        loop = asyncio.get_running_loop()
        self._begun = True

        def expired() -> None:
            loop.call_soon_threadsafe(self._end, TransactionTooLong())

        self._writer.expired = expired
        try:
            await self._writer.run_job(lambda connection: self._writer.begin_limited(connection, self))
        except Exception:
            self._begun = False
            self._turn.release()
            raise

    def _end(self, why: Exception) -> None:
        if self._begun and self._over is None:
            self._over = why
            self._writer.expired = None
            self._turn.release()

    async def execute(self, sql: str, *args: Any) -> list[Row]:
        return await self.fetch(sql, *args)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        values = list(rows)
        await self._run(lambda connection: list(connection.executemany(sql, values)))

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        found: list[Row] = await self._run(lambda connection: rows(connection, sql, args))
        return found

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        found = await self.fetch(sql, *args)
        return found[0] if found else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row else None

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        def finish(connection: apsw.Connection) -> None:
            if self._writer.ended_meanwhile(connection):
                raise HandlerCommitted()
            if self._settle(connection, outcomes) != len(outcomes):
                raise ClaimLost()
            connection.execute("COMMIT")
            self._writer.end_limited()

        try:
            await self._run(finish)
        except BaseException:
            await self.rollback()
            raise
        self._end(ClaimLost("the transaction of this attempt is over"))

    async def rollback(self) -> None:
        if not self._begun or self._over is not None:
            self._over = self._over or ClaimLost("the transaction of this attempt is over")
            return

        def undo(connection: apsw.Connection) -> None:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._writer.end_limited()

        try:
            await asyncio.shield(self._writer.run_job(undo))
        finally:
            self._end(ClaimLost("the transaction of this attempt is over"))
