"""A handler's transaction on PostgreSQL, its outcome the last statement before the commit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from asyncpg import Connection
from asyncpg.pool import Pool, PoolConnectionProxy

from ...errors import ClaimLost, HandlerCommitted
from ...model import Outcome
from ..rows import outcome_values
from .intake import columns


class PostgresTransaction:
    """Begun at the first statement; holds one connection of the handlers' pool from then on."""

    def __init__(self, pool: Pool[Any], sql: Callable[[str], str], idle_limit: float) -> None:
        self._pool = pool
        self._sql = sql
        self._idle_limit = idle_limit
        self._mark = ""
        self._connection: PoolConnectionProxy[Any] | None = None
        self._over = False
        self._turn = asyncio.Lock()

    @property
    def begun(self) -> bool:
        return self._connection is not None

    async def connection(self) -> Connection[Any]:
        """The asyncpg connection, its transaction begun."""
        if self._over:
            raise ClaimLost("the transaction of this attempt is over")
        if self._connection is None:
            acquired = await self._pool.acquire()
            if self._over:  # rolled back while we queued: nobody would give the connection back
                await self._pool.release(acquired)
                raise ClaimLost("the transaction of this attempt is over")
            self._mark = secrets.token_hex(8)
            limit = int(self._idle_limit * 1000)
            try:
                await acquired.execute(self._sql("begin_handler") % (self._mark, limit, limit))
            except BaseException:
                # Nobody knows whether it began: no statement may follow, on this connection or in this attempt.
                self._over = True
                acquired.terminate()
                await self._pool.release(acquired)
                raise
            self._connection = acquired
        return self._connection  # type: ignore[return-value]  # the proxy has the connection's methods

    # One statement at a time: a handler that gathers several must not begin two transactions.

    async def execute(self, sql: str, *args: Any) -> str:
        async with self._turn:
            return await (await self.connection()).execute(sql, *args)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        async with self._turn:
            await (await self.connection()).executemany(sql, rows)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._turn:
            return await (await self.connection()).fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> Any | None:
        async with self._turn:
            return await (await self.connection()).fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        async with self._turn:
            return await (await self.connection()).fetchval(sql, *args)

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Outcome, then COMMIT; see the protocol for what is raised."""
        try:
            async with self._turn:
                await self._commit(await self.connection(), outcomes)
        except BaseException:
            await self.rollback()
            raise
        await self._release()

    async def _commit(self, connection: Connection[Any], outcomes: Sequence[Outcome]) -> None:
        # Sorted as everywhere: whoever writes several events takes their locks in one order.
        rows = sorted(map(outcome_values, outcomes), key=itemgetter(0))
        settled = await connection.fetch(self._sql("settle"), *(columns(rows) or [[]] * 8), self._mark)
        if not outcomes or len(settled) != len(outcomes):
            if await connection.fetchval(self._sql("mark")) != self._mark:
                raise HandlerCommitted()
            if outcomes:
                raise ClaimLost()
        await connection.execute("COMMIT")

    async def rollback(self) -> None:
        self._over = True
        connection = self._connection
        if connection is None:
            return
        try:
            # Always, and not only when the driver sees a transaction: a cancelled BEGIN may still be on its way.
            await connection.execute("ROLLBACK")
        except Exception:
            # A statement of an abandoned handler is still running, or the server is gone: the socket's end
            # rolls back, and no later handler gets the connection.
            connection.terminate()
        finally:
            await self._release()

    async def _release(self) -> None:
        self._over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.release(connection)
