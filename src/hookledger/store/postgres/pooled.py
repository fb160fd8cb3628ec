"""The handler's transaction in asyncpg, on a connection of the handlers' own pool: what a handler gets by default."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import asyncpg
from asyncpg.pool import Pool, PoolConnectionProxy


class PooledConnection:
    """An adapter; see the protocol. Its settings begin the transaction too: one message to the server."""

    def __init__(self, pool: Pool[Any]) -> None:
        self._pool = pool
        self._connection: PoolConnectionProxy[Any] | None = None

    @property
    def tx(self) -> PoolConnectionProxy[Any]:
        assert self._connection is not None, "not begun"
        return self._connection

    async def begin(self, settings: str) -> list[Any]:
        self._connection = await self._pool.acquire()
        await self._connection.execute(settings)
        return []

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        return await self.tx.fetch(sql, *args)

    async def flush(self) -> None:
        """Nothing is held back."""

    async def commit(self) -> None:
        await self.tx.execute("COMMIT")
        await self._release()

    async def rollback(self) -> None:
        # Always, and not only when the driver sees a transaction: a cancelled BEGIN may still be on its way.
        # Fails while a statement of an abandoned handler is running.
        await self.tx.execute("ROLLBACK")
        await self._release()

    async def discard(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(asyncpg.InterfaceError):  # the server ended it, and the pool has it back already
                self._connection.terminate()  # the socket's end rolls back, and no later handler gets the connection
            await self._release()

    async def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.release(connection)
