"""The libraries that a handler's transaction may be in, each used as its users use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from hookledger.contrib.psycopg import AsyncConnections, Connections
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.model import Claimed
from hookledger.store.postgres.transaction import PostgresTransaction
from hookledger.store.protocol import Store, Transactions
from tests.builders import Raw, way_out
from tests.contract.test_transaction_effects import several

TABLE = "CREATE TABLE public.ledger (entry text PRIMARY KEY)"
DEFERRED = "CREATE TABLE public.deferred (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)"
LIBRARIES = ["asyncpg", "sqlalchemy-asyncpg", "sqlalchemy-psycopg", "sqlalchemy-plain", "psycopg", "psycopg-plain"]
OURS = LIBRARIES[0]


class Base(DeclarativeBase):
    pass


class Entry(Base):
    __tablename__ = "ledger"
    entry: Mapped[str] = mapped_column(primary_key=True)


class Library:
    """How a handler speaks to the database; every use of `tx` is as its library has it."""

    def __init__(self, name: str, transactions: Transactions | None, store: Store) -> None:
        self.name = name
        self.transactions = transactions
        self.plain = name.endswith("-plain")
        self._store = store

    async def begun(self, store: Store | None = None) -> PostgresTransaction:
        adapter = self.transactions.adapter() if self.transactions else None
        tx = (store or self._store).transaction(adapter)
        assert isinstance(tx, PostgresTransaction)
        await tx.begin()
        return tx

    async def run(self, tx: Any, sql: str) -> None:
        """One statement, as a handler would run it: a plain one in a thread of its own."""
        if self.plain:
            await asyncio.to_thread(self._blocking, tx, sql)
        elif self.name.startswith("sqlalchemy"):
            await tx.execute(text(sql))
        else:
            await tx.execute(sql)

    def _blocking(self, tx: Any, sql: str) -> None:
        tx.execute(text(sql) if self.name.startswith("sqlalchemy") else sql)

    async def write(self, tx: Any, entry: str) -> None:
        await self.run(tx, f"INSERT INTO public.ledger VALUES ('{entry}')")

    async def call(self, method: Callable[[], Any]) -> None:
        """Such as `tx.commit`."""
        if self.plain:
            await asyncio.to_thread(method)
        else:
            await method()


async def made(name: str, url: str, **options: Any) -> AsyncIterator[Transactions | None]:
    """The transactions of one library, with a pool of two connections; closed after use."""
    dialect = url.replace("postgresql://", "postgresql+psycopg://").replace("postgres://", "postgresql+psycopg://")
    size: dict[str, Any] = {"pool_size": 2, "max_overflow": 0, **options}
    if name == OURS:
        yield None
    elif name in ("sqlalchemy-asyncpg", "sqlalchemy-psycopg"):
        driver = dialect.replace("+psycopg", "+asyncpg") if name.endswith("asyncpg") else dialect
        async_engine = create_async_engine(driver, **size)
        yield AsyncSessions(async_sessionmaker(async_engine))
        await async_engine.dispose()
    elif name == "sqlalchemy-plain":
        engine = create_engine(dialect, **size)
        yield Sessions(sessionmaker(engine))
        engine.dispose()
    elif name == "psycopg":
        pool = AsyncConnectionPool(url, min_size=1, max_size=2, open=False, kwargs=options)
        yield AsyncConnections(pool)
        await pool.close()
    else:
        blocking = ConnectionPool(url, min_size=1, max_size=2, open=False, kwargs=options)
        yield Connections(blocking)
        await asyncio.to_thread(blocking.close)


async def entries(raw: Raw) -> list[str]:
    return [row[0] for row in await raw.run("SELECT entry FROM public.ledger ORDER BY entry")]


async def works(library: Library, store: Store, raw: Raw) -> None:
    """Two more handlers, one after the other, and two at once: no connection was lost or left unclean."""
    before = await entries(raw)
    owners = await several(store, 3)

    async def handle(owner: Claimed) -> None:
        tx = await library.begun()
        await library.write(tx.tx, owner.key)
        await tx.commit([way_out(owner, "complete")])

    await handle(owners[0])
    await asyncio.wait_for(asyncio.gather(*map(handle, owners[1:])), 20)
    assert await entries(raw) == sorted([*before, *(owner.key for owner in owners)])
