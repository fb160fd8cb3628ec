"""Handlers whose transaction is a SQLAlchemy 2 session.

    inbox = Inbox(URL, transactions=AsyncSessions(async_sessionmaker(engine)))

    @stripe.on("invoice.paid")
    async def provision(event: Event[AsyncSession]) -> None:
        event.tx.add(Credit(…))

The session has begun when the handler starts, and is flushed before the outcome is written. Hookledger detects a
handler that commits, rolls back or closes it, and its event needs review; `event.tx.begin_nested()` is a savepoint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import QueuePool

from ..errors import ConfigError, HandlerCommitted
from .blocking import PATIENCE, Blocking


class AsyncSessions:
    """For async handlers: `event.tx` is an AsyncSession. The engine's driver is asyncpg or psycopg."""

    plain = False

    def __init__(self, sessions: async_sessionmaker[Any]) -> None:
        if not isinstance(sessions, async_sessionmaker):
            raise ConfigError(f"AsyncSessions needs an async_sessionmaker, not {type(sessions).__name__}")
        self._sessions = sessions

    @property
    def size(self) -> int | None:
        return _size(getattr(self._sessions.kw.get("bind"), "sync_engine", None))

    def adapter(self) -> AsyncAdapter:
        return AsyncAdapter(self._sessions(close_resets_only=False))  # once closed, it cannot be used again


class Sessions:
    """For plain functions: `event.tx` is a Session, used in the handler's thread. The engine's driver is psycopg."""

    plain = True

    def __init__(self, sessions: sessionmaker[Any]) -> None:
        if not isinstance(sessions, sessionmaker):
            raise ConfigError(f"Sessions needs a sessionmaker, not {type(sessions).__name__}")
        self._sessions = sessions

    @property
    def size(self) -> int | None:
        return _size(self._sessions.kw.get("bind"))

    def adapter(self) -> Adapter:
        return Adapter(self._sessions(close_resets_only=False))


class AsyncAdapter:
    """The adapter of one async handler; see the protocol."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    @property
    def tx(self) -> AsyncSession:
        return self._session

    async def begin(self, settings: str) -> list[Any]:
        check_driver(self._session)
        connection = await self._session.connection()
        return list((await connection.exec_driver_sql(settings)).all())

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        check_open(self._session)
        connection = await self._session.connection()
        if connection.dialect.driver == "asyncpg":
            result = await connection.exec_driver_sql(sql, tuple(args) or None)
            return list(result.all()) if result.returns_rows else []
        from .psycopg import fetch_async

        driver: Any = (await connection.get_raw_connection()).driver_connection
        return await fetch_async(driver, sql, args)

    async def flush(self) -> None:
        check_open(self._session)
        await self._session.flush()

    async def commit(self) -> None:
        await self._session.commit()
        await self._session.close()

    async def rollback(self) -> None:
        await self._session.rollback()
        await self._session.close()

    async def discard(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(PATIENCE):
                await self._session.invalidate()


class Adapter:
    """The adapter of one plain function; see the protocol."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._blocking = Blocking()
        self._connection: Connection | None = None

    @property
    def tx(self) -> Session:
        return self._session

    async def begin(self, settings: str) -> list[Any]:
        return await self._blocking(self._begin, settings)

    def _begin(self, settings: str) -> list[Any]:
        check_driver(self._session)
        self._connection = self._session.connection()
        return list(self._connection.exec_driver_sql(settings).all())

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        return await self._blocking(self._run, sql, args)

    def _run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        from .psycopg import fetch

        check_open(self._session)
        return fetch(_driver(self._session.connection()), sql, args)

    async def flush(self) -> None:
        check_open(self._session)
        await self._blocking(self._session.flush)

    async def commit(self) -> None:
        await self._blocking(self._commit)
        self._blocking.end()

    def _commit(self) -> None:
        self._session.commit()
        self._session.close()

    async def rollback(self) -> None:
        await self._blocking(self._rollback)
        self._blocking.end()

    def _rollback(self) -> None:
        self._session.rollback()
        self._session.close()

    async def discard(self) -> None:
        from .psycopg import stop

        connection = self._connection
        if connection is not None and not connection.closed and not connection.invalidated:
            await self._blocking.beside(stop, _driver(connection))
        await self._blocking.afterwards(self._clean_up)

    def _clean_up(self) -> None:
        """Close the session. Errors are ignored: another thread may be using it, and its next statement fails."""
        from .psycopg import wait_for_users

        with contextlib.suppress(Exception):
            if self._connection is not None and not self._connection.closed:
                wait_for_users(_driver(self._connection))
                self._connection.invalidate()
        with contextlib.suppress(Exception):
            self._session.close()


def check_open(session: AsyncSession | Session) -> None:
    """Raise HandlerCommitted if the handler closed the session: the transaction's mark cannot be read then."""
    if not session.in_transaction():
        raise HandlerCommitted()


def _size(engine: Any) -> int | None:
    """Return the connections of an engine's pool, with its overflow; None if unlimited or unknown."""
    pool = getattr(engine, "pool", None)
    if not isinstance(pool, QueuePool):
        return None
    overflow: int = getattr(pool, "_max_overflow", -1)  # has no public name
    return None if overflow < 0 else pool.size() + overflow


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def check_driver(session: AsyncSession | Session) -> None:
    """Raise ConfigError unless Hookledger can write the outcome through the session's driver."""
    try:
        dialect = session.get_bind().dialect
    except UnboundExecutionError as error:
        raise ConfigError("the sessionmaker has no engine: use sessionmaker(engine)") from error
    if dialect.name != "postgresql":
        raise ConfigError(
            f"the session's engine is for {dialect.name}: use PostgreSQL, because Hookledger writes the outcome in "
            "the same transaction"
        )
    wanted = ("asyncpg", "psycopg") if dialect.is_async else ("psycopg",)
    if dialect.driver not in wanted:
        use = " or ".join(f"postgresql+{driver}://" for driver in wanted)
        raise ConfigError(
            f"the session's engine uses {dialect.driver}, which has no $1 parameters of PostgreSQL: use {use}"
        )
