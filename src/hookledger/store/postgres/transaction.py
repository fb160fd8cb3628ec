"""A handler's transaction on PostgreSQL, its outcome the last statement before the commit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
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

    @property
    def begun(self) -> bool:
        return self._connection is not None

    async def connection(self) -> Connection[Any]:
        """The asyncpg connection, its transaction begun."""
        if self._over:
            raise ClaimLost("the transaction of this attempt is over")
        if self._connection is None:
            acquired = await self._pool.acquire()
            self._connection = acquired
            self._mark = secrets.token_hex(8)
            limit = int(self._idle_limit * 1000)
            await acquired.execute(self._sql("begin_handler") % (self._mark, limit, limit))
        return self._connection  # type: ignore[return-value]  # the proxy has the connection's methods

    async def execute(self, sql: str, *args: Any) -> str:
        return await (await self.connection()).execute(sql, *args)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        await (await self.connection()).executemany(sql, rows)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return await (await self.connection()).fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> Any | None:
        return await (await self.connection()).fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        return await (await self.connection()).fetchval(sql, *args)

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Outcome, then COMMIT; see the protocol for what is raised."""
        connection = await self.connection()
        args = columns(map(outcome_values, outcomes))
        settled = await connection.fetch(self._sql("settle"), *args, self._mark)
        if len(settled) == len(outcomes):
            await connection.execute("COMMIT")
            await self._release()
            return
        marked = await connection.fetchval("SELECT current_setting('hookledger.mark', true)") == self._mark
        await self.rollback()
        raise ClaimLost() if marked else HandlerCommitted()

    async def rollback(self) -> None:
        self._over = True
        if self._connection is None:
            return
        try:
            if not self._connection.is_closed() and self._connection.is_in_transaction():
                await self._connection.execute("ROLLBACK")
        finally:
            await self._release()

    async def _release(self) -> None:
        self._over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.release(connection)
