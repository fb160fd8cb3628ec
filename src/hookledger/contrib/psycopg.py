"""Handlers whose transaction is a psycopg 3 connection.

    inbox = Inbox(URL, transactions=AsyncConnections(pool))

    @stripe.on("invoice.paid")
    async def provision(event: Event[AsyncConnection]) -> None:
        await event.tx.execute("UPDATE accounts SET …", …)

The transaction is open when the handler starts. psycopg itself refuses `event.tx.commit()` and `rollback()`;
`event.tx.transaction()` is a savepoint. Hookledger detects a COMMIT statement, and the event needs review.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import psycopg
from psycopg import AsyncConnection, Connection, Rollback
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..errors import ConfigError, HandlerCommitted
from .blocking import PATIENCE, Blocking


class AsyncPool(Protocol):
    """The part of psycopg_pool's AsyncConnectionPool that Hookledger uses."""

    @property
    def closed(self) -> bool: ...
    @property
    def max_size(self) -> int: ...
    async def open(self) -> None: ...
    async def getconn(self) -> AsyncConnection[Any]: ...
    async def putconn(self, conn: Any, /) -> None: ...


class Pool(Protocol):
    """The part of psycopg_pool's ConnectionPool that Hookledger uses."""

    @property
    def closed(self) -> bool: ...
    @property
    def max_size(self) -> int: ...
    def open(self) -> None: ...
    def getconn(self) -> Connection[Any]: ...
    def putconn(self, conn: Any, /) -> None: ...


AsyncSource: TypeAlias = AsyncPool | str | Callable[[], Awaitable[AsyncConnection[Any]]]
Source: TypeAlias = Pool | str | Callable[[], Connection[Any]]


class AsyncConnections:
    """For async handlers: `event.tx` is an AsyncConnection.

    Pass the application's AsyncConnectionPool; Hookledger opens it if it is closed, and leaves it open. Or pass a
    connection string or a function that connects: then each handler gets a new connection, which costs some
    milliseconds. The worker runs at most as many of these handlers as the pool has connections.
    """

    plain = False

    def __init__(self, source: AsyncSource) -> None:
        _check_source(source, wanted=True)
        self._source = source

    @property
    def size(self) -> int | None:
        return _size(self._source)

    def adapter(self) -> AsyncAdapter:
        return AsyncAdapter(self)

    async def get(self) -> AsyncConnection[Any]:
        if isinstance(self._source, str):
            return await AsyncConnection.connect(self._source)
        if callable(self._source):
            return await self._source()
        if self._source.closed:
            await self._source.open()
        return await self._source.getconn()

    async def put(self, connection: AsyncConnection[Any]) -> None:
        if isinstance(self._source, str) or callable(self._source):
            await connection.close()
        else:
            await self._source.putconn(connection)


class Connections:
    """For plain functions: `event.tx` is a Connection, used in the handler's thread. Else like AsyncConnections."""

    plain = True

    def __init__(self, source: Source) -> None:
        _check_source(source, wanted=False)
        self._source = source

    @property
    def size(self) -> int | None:
        return _size(self._source)

    def adapter(self) -> Adapter:
        return Adapter(self)

    def get(self) -> Connection[Any]:
        if isinstance(self._source, str):
            return Connection.connect(self._source)
        if callable(self._source):
            return self._source()
        if self._source.closed:
            self._source.open()
        return self._source.getconn()

    def put(self, connection: Connection[Any]) -> None:
        if isinstance(self._source, str) or callable(self._source):
            connection.close()
        else:
            self._source.putconn(connection)


class AsyncAdapter:
    """The adapter of one async handler; see the protocol."""

    def __init__(self, connections: AsyncConnections) -> None:
        self._connections = connections
        self._connection: AsyncConnection[Any] | None = None
        self._block: contextlib.AbstractAsyncContextManager[Any] | None = None

    @property
    def tx(self) -> AsyncConnection[Any]:
        assert self._connection is not None, "not begun"
        return self._connection

    async def begin(self, settings: str) -> list[Any]:
        self._connection = await self._connections.get()
        check_idle(self._connection)
        self._block = self._connection.transaction()
        await self._block.__aenter__()
        return await self.run(settings, ())

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        return await fetch_async(self.tx, sql, args)

    async def flush(self) -> None:
        """Do nothing: every statement is sent immediately."""

    async def commit(self) -> None:
        assert self._block is not None
        block, self._block = self._block, None
        await block.__aexit__(None, None, None)
        await self._release()

    async def rollback(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            await block.__aexit__(Rollback, Rollback(), None)
        elif self._connection is not None:  # its commit failed
            await self._connection.rollback()
        await self._release()

    async def discard(self) -> None:
        if self._connection is not None:
            break_off(self._connection)
            await self._connection.close()
            await self._release()

    async def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._connections.put(connection)


class Adapter:
    """The adapter of one plain function; see the protocol."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._blocking = Blocking()
        self._connection: Connection[Any] | None = None
        self._block: contextlib.AbstractContextManager[Any] | None = None

    @property
    def tx(self) -> Connection[Any]:
        assert self._connection is not None, "not begun"
        return self._connection

    async def begin(self, settings: str) -> list[Any]:
        return await self._blocking(self._begin, settings)

    def _begin(self, settings: str) -> list[Any]:
        self._connection = self._connections.get()
        check_idle(self._connection)
        self._block = self._connection.transaction()
        self._block.__enter__()
        return fetch(self._connection, settings, ())

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        return await self._blocking(fetch, self.tx, sql, args)

    async def flush(self) -> None:
        """Do nothing: every statement is sent immediately."""

    async def commit(self) -> None:
        await self._blocking(self._commit)
        self._blocking.end()

    def _commit(self) -> None:
        assert self._block is not None
        block, self._block = self._block, None
        block.__exit__(None, None, None)
        self._release()

    async def rollback(self) -> None:
        await self._blocking(self._rollback)
        self._blocking.end()

    def _rollback(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(Rollback, Rollback(), None)
        elif self._connection is not None:  # its commit failed
            self._connection.rollback()
        self._release()

    async def discard(self) -> None:
        if self._connection is not None:
            await self._blocking.beside(stop, self._connection)
        await self._blocking.afterwards(self._clean_up)

    def _clean_up(self) -> None:
        if self._connection is not None:
            wait_for_users(self._connection)
            self._connection.close()
            self._release()

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.put(connection)


# ── one connection ───────────────────────────────────────────────────────────


async def fetch_async(connection: AsyncConnection[Any], sql: str, args: Sequence[Any]) -> list[Any]:
    """Run a statement with `$1` parameters and return its rows as tuples, whatever the connection's settings."""
    check_open(connection)
    async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(sql.encode(), args or None)
        return await cursor.fetchall() if cursor.description else []


def fetch(connection: Connection[Any], sql: str, args: Sequence[Any]) -> list[Any]:
    """Do the same, blocking."""
    check_open(connection)
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(sql.encode(), args or None)
        return cursor.fetchall() if cursor.description else []


def check_open(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise HandlerCommitted if the handler closed the connection: the transaction's mark cannot be read then."""
    if connection.closed and not connection.broken:
        raise HandlerCommitted()


def check_idle(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise ConfigError if a transaction is open: Hookledger's would be a savepoint, without a commit."""
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        raise ConfigError("the connection from psycopg has an open transaction or is in use: return it idle")


def break_off(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Shut down the socket, so that a statement in another thread fails; closing the connection would not be safe."""
    with contextlib.suppress(psycopg.Error, OSError):
        line = socket.socket(fileno=connection.fileno())
        try:
            line.shutdown(socket.SHUT_RDWR)
        finally:
            line.detach()


def stop(connection: Connection[Any]) -> None:
    """Do the same, and cancel a statement in another thread: the server would finish it and hold its locks."""
    if connection.info.transaction_status is TransactionStatus.ACTIVE:
        with contextlib.suppress(psycopg.Error):
            connection.cancel_safe(timeout=PATIENCE)
    break_off(connection)


def wait_for_users(connection: Connection[Any]) -> None:
    """Wait until a statement in another thread has failed on the broken connection."""
    with contextlib.suppress(psycopg.Error):
        connection.execute(b"ROLLBACK")


def _size(source: AsyncSource | Source) -> int | None:
    """Return the number of connections; None: no limit, which a null pool reports as 0."""
    return None if isinstance(source, str) or callable(source) else source.max_size or None


def _check_source(source: Any, *, wanted: bool) -> None:
    right, other = ("AsyncConnections", "Connections") if wanted else ("Connections", "AsyncConnections")
    if not (isinstance(source, str) or callable(source) or hasattr(source, "getconn")):
        raise ConfigError(
            f"{right} needs a pool of psycopg_pool, a connection string or a function that connects, "
            f"not {type(source).__name__}"
        )
    if hasattr(source, "getconn") and inspect.iscoroutinefunction(source.getconn) is not wanted:
        handlers = "async handlers" if wanted else "plain functions"
        raise ConfigError(f"{right} is for {handlers}: pass the {type(source).__name__} to {other}")
