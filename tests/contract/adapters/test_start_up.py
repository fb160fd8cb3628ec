"""What cannot work is refused before the first event."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker

from hookledger.clock import Clock
from hookledger.contrib.psycopg import AsyncConnections, Connections
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.errors import ConfigError, Unavailable
from hookledger.store.connect import connect
from hookledger.store.protocol import Store, Transactions
from tests.builders import Raw
from tests.contract.adapters.libraries import LIBRARIES, TABLE, Library, made, works
from tests.services.postgres import Databases


async def test_the_check_leaves_nothing_behind(theirs: Library, store: Store, raw: Raw) -> None:
    assert theirs.transactions is not None
    await store.check(theirs.transactions)
    assert await raw.count("effects") == await raw.count("effect_lanes") == 0
    await works(theirs, store, raw)


@pytest.mark.parametrize("name", LIBRARIES[1:])
async def test_another_database_is_refused(
    name: str, store: Store, postgres: Databases, postgres_url: str, clock: Clock
) -> None:
    elsewhere = postgres.create_database("hookledger_elsewhere")
    other = connect(elsewhere, clock=clock)
    await other.open()
    await other.migrate()
    await other.close()
    try:
        async for transactions in made(name, elsewhere):
            assert transactions is not None
            with pytest.raises(ConfigError, match="another database"):
                await store.check(transactions)
    finally:
        postgres.drop_database("hookledger_elsewhere")


@pytest.mark.parametrize("name", ["sqlalchemy-asyncpg", "sqlalchemy-psycopg", "sqlalchemy-plain"])
async def test_autocommit_is_refused(name: str, store: Store, postgres_url: str) -> None:
    async for transactions in made(name, postgres_url, isolation_level="AUTOCOMMIT"):
        assert transactions is not None
        with pytest.raises(ConfigError, match="autocommit"):
            await store.check(transactions)


@pytest.mark.parametrize("name", ["psycopg", "psycopg-plain"])
async def test_autocommit_makes_no_difference_to_psycopg(
    name: str, store: Store, raw: Raw, postgres_url: str
) -> None:
    await raw.run(TABLE)
    async for transactions in made(name, postgres_url, autocommit=True):
        assert transactions is not None
        await store.check(transactions)
        library = Library(name, transactions, store)
        tx = await library.begun()
        await library.write(tx.tx, "undone")
        await tx.rollback()
        await works(library, store, raw)


@pytest.mark.parametrize("name", ["psycopg", "psycopg-plain"])
@pytest.mark.parametrize("source", ["string", "function"])
async def test_psycopg_without_a_pool(name: str, source: str, store: Store, raw: Raw, postgres_url: str) -> None:
    await raw.run(TABLE)
    transactions: Transactions
    if name == "psycopg":
        transactions = AsyncConnections(
            postgres_url if source == "string" else lambda: psycopg.AsyncConnection.connect(postgres_url)
        )
    else:
        transactions = Connections(
            postgres_url if source == "string" else lambda: psycopg.Connection.connect(postgres_url)
        )
    await store.check(transactions)
    await works(Library(name, transactions, store), store, raw)


async def test_a_role_that_may_not_write_our_tables(store: Store, postgres: Databases, postgres_url: str) -> None:
    postgres.execute("DROP ROLE IF EXISTS hookledger_stranger")
    postgres.execute("CREATE ROLE hookledger_stranger LOGIN")

    def stranger() -> psycopg.Connection[Any]:
        connection = psycopg.Connection.connect(postgres_url)
        connection.execute("SET SESSION AUTHORIZATION hookledger_stranger")
        connection.commit()
        return connection

    with pytest.raises(ConfigError, match=r"cannot write Hookledger's tables: .*permission denied"):
        await store.check(Connections(stranger))
    postgres.execute("DROP ROLE hookledger_stranger")


async def test_a_database_that_is_not_there(store: Store) -> None:
    with pytest.raises(Unavailable, match="AsyncConnections"):
        await store.check(AsyncConnections("postgresql://127.0.0.1:1/nowhere"))


async def test_sqlite_is_refused(sqlite_url: str, clock: Clock) -> None:
    store = connect(sqlite_url, clock=clock)
    await store.open(handlers=1)
    await store.migrate()
    transactions = Sessions(sessionmaker(create_engine("sqlite://")))
    reason = "a second SQLite on one file.*stall every ack"
    with pytest.raises(ConfigError, match=reason):
        await store.check(transactions)
    with pytest.raises(ConfigError, match=reason):
        store.transaction(transactions.adapter())
    await store.close()


async def test_other_dialects_are_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="for sqlite: use PostgreSQL"):
        await store.check(Sessions(sessionmaker(create_engine("sqlite://"))))
    with pytest.raises(ConfigError, match="has no engine"):
        await store.check(Sessions(sessionmaker()))
    with pytest.raises(ConfigError, match="has no engine"):
        await store.check(AsyncSessions(async_sessionmaker()))


async def test_the_wrong_kind_is_refused(postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="needs a sessionmaker"):
        Sessions(create_engine("sqlite://"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs an async_sessionmaker"):
        AsyncSessions(sessionmaker())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pass the AsyncConnectionPool to AsyncConnections"):
        Connections(AsyncConnectionPool(postgres_url, open=False))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="to Connections"):
        AsyncConnections(ConnectionPool(postgres_url, open=False))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not int"):
        Connections(7)  # type: ignore[arg-type]
