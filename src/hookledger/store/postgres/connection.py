"""PostgreSQL connections: whatever goes wrong on one becomes one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
from asyncpg.pool import Pool, PoolConnectionProxy

from ...errors import BadData, SchemaMismatch, Unavailable
from ..sqlstate import DATA_ERRORS, FORBIDDEN, hint

T = TypeVar("T")
IDLE = 60.0
"""Seconds between two checks for unused connections."""
_TRY_AGAIN = ("40001", "40P01")
IDLE_LIMIT = "SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""Without it a process frozen between two statements keeps its row locks until it resumes."""
READ_COMMITTED = f"BEGIN ISOLATION LEVEL READ COMMITTED; {IDLE_LIMIT}"
"""Whatever the server's default is: an operation must see what was committed before its lock was granted."""
BEGIN = f"{READ_COMMITTED}; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s'"
"""A commit is on disk, whatever the server's default is. A statement waits briefly for a lock, because a handler that
has not committed may hold it. SET LOCAL survives a transaction pooler."""
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
    """A pool, and before it those that were just used: the pool's own hand-over costs as much as thirty rows do.

    `pooler`: no statement outlives a transaction, so each use is one.
    """

    def __init__(self, pool: Pool[Any], *, timeout: float, pooler: bool) -> None:
        self._pool = pool
        self._timeout = timeout
        self.pooler = pooler
        self._idle: list[PoolConnectionProxy[Any]] = []  # the last one used goes first
        self._unused = 0  # so many of them, the first ones, were unused since the last check
        self._look: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._closing = False

    async def close(self) -> None:
        self._closing = True
        if self._look is not None:
            self._look.cancel()
        try:
            async with asyncio.timeout(self._timeout):
                while self._idle:
                    await self._pool.release(self._idle.pop())
                await self._pool.close()
        except (*OUTAGE,):
            self._pool.terminate()

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        connection = await self._take()
        whole = False
        try:
            yield connection
            whole = True
        except asyncpg.InternalClientError:
            connection.terminate()  # out of step with the server: no later query could use it
            raise
        finally:
            # In a transaction that was left open here, what the next user records would not be on disk.
            whole = whole and is_open(connection) and not connection.is_in_transaction()
            if whole and not (self._waiting or self._closing):
                self._keep(connection)
            else:
                await self._pool.release(connection)  # it knows who waits, and what to do with a broken one

    async def _take(self) -> PoolConnectionProxy[Any]:
        while self._idle:
            connection = self._idle.pop()
            self._unused = min(self._unused, len(self._idle))
            if is_open(connection):
                return connection
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=self._timeout)
        finally:
            self._waiting -= 1

    def _keep(self, connection: PoolConnectionProxy[Any]) -> None:
        self._idle.append(connection)
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(IDLE, self._tidy)

    def _tidy(self) -> None:
        """Return connections that were unused for a while to the pool, which closes them in time."""
        unused, self._idle = self._idle[: self._unused], self._idle[self._unused :]
        self._unused = len(self._idle)
        self._look = asyncio.get_running_loop().call_later(IDLE, self._tidy) if self._idle else None
        for connection in unused:
            task = asyncio.ensure_future(self._pool.release(connection))
            self._releasing.add(task)  # the loop itself would let it be collected
            task.add_done_callback(self._releasing.discard)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        """A connection for single statements."""
        async with self.bare() as connection:
            if self.pooler:
                async with transaction(connection, f"BEGIN; {IDLE_LIMIT}"):
                    yield connection
            else:
                yield connection

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        """A connection for a caller that begins its own transaction."""
        try:
            async with self._acquire() as connection:
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


def is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the server ended it, and the pool has it back already
        return False


@asynccontextmanager
async def transaction(connection: Any, begin: str) -> AsyncIterator[None]:
    """One transaction; `begin` brings its settings along, which saves a round trip for each."""
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        if is_open(connection):
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def nothing(_: Any) -> None:
    """What a connection needs between two uses."""


def translate(error: Exception) -> Exception:
    """What a driver's error means to the caller."""
    code = getattr(error, "sqlstate", None) or ""
    if code[:2] in DATA_ERRORS:
        return BadData(str(error))
    if code in ("3F000", "42P01", "42703"):
        return SchemaMismatch(f"{error}: run 'hookledger migrate'")
    if code == FORBIDDEN:
        return Unavailable(str(error))
    if advice := hint(error):  # the driver's own words for these are a page long
        return Unavailable(f"PostgreSQL: {type(error).__name__}: {advice}")
    return Unavailable(f"PostgreSQL: {str(error) or type(error).__name__}")
