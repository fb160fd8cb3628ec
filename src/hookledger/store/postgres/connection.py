"""PostgreSQL connections: whatever goes wrong on one becomes one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
from asyncpg.pool import Pool, PoolConnectionProxy

from ...errors import BadData, SchemaMismatch, Unavailable

T = TypeVar("T")
_DATA_ERRORS = ("22", "23", "54")
_TRY_AGAIN = ("40001", "40P01")
# Everything that means "not now": the driver's own errors and the operating system's.
OUTAGE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # seen when the server shuts down between two messages of one query
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
)


class Connections:
    """A pool. `pooler`: no statement outlives a transaction, so each use is one."""

    def __init__(self, pool: Pool[Any], *, timeout: float, pooler: bool) -> None:
        self._pool = pool
        self._timeout = timeout
        self.pooler = pooler

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), self._timeout)
        except (*OUTAGE,):
            self._pool.terminate()

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        async with self._pool.acquire(timeout=self._timeout) as connection:
            try:
                yield connection
            except asyncpg.InternalClientError:
                connection.terminate()  # out of step with the server: no later query could use it
                raise

    @asynccontextmanager
    async def use(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        """A connection for single statements."""
        try:
            async with self._acquire() as connection:
                if self.pooler:
                    async with connection.transaction():
                        yield connection
                else:
                    yield connection
        except OUTAGE as error:
            raise translate(error) from error

    async def insist(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run what begins and ends its own transactions; again, when it was the one to give way in a deadlock."""
        for _ in range(3):
            try:
                async with self._acquire() as connection:
                    return await work(connection)
            except OUTAGE as error:
                if getattr(error, "sqlstate", None) not in _TRY_AGAIN:
                    raise translate(error) from error
        raise Unavailable("deadlocks three times in a row")


@asynccontextmanager
async def transaction(connection: Any, begin: str) -> AsyncIterator[None]:
    """One transaction; `begin` brings its settings along, which saves a round trip for each."""
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def nothing(_: Any) -> None:
    """What a connection needs between two uses."""


def translate(error: Exception) -> Exception:
    """What a driver's error means to the caller."""
    code = getattr(error, "sqlstate", None) or ""
    if code[:2] in _DATA_ERRORS:
        return BadData(str(error))
    if code in ("3F000", "42P01", "42703"):
        return SchemaMismatch(f"{error}: run 'hookledger migrate'")
    return Unavailable(f"PostgreSQL: {str(error) or type(error).__name__}")
