"""Isolation levels at which an outcome could never be written are refused, and cost no attempt."""

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection, Connection, IsolationLevel
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from hookledger import ConfigError, Event, State, SyncEvent
from hookledger.contrib.psycopg import AsyncConnections, Connections
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.store.protocol import Transactions
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str) -> Site:
    made = await site_on(postgres_url, {"work": {"poll": "10ms", "lease": "1s"}})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize(
    "library", ["sqlalchemy-psycopg", "sqlalchemy-asyncpg", "sqlalchemy-plain", "psycopg", "psycopg-plain"]
)
async def test_refused_at_start_up(site: Site, postgres_url: str, library: str, level: str) -> None:
    dialect = postgres_url.replace("postgresql://", "postgresql+psycopg://")

    def connect() -> Connection[Any]:
        connection = Connection.connect(postgres_url)
        connection.isolation_level = IsolationLevel[level.replace(" ", "_")]
        return connection

    async def connect_async() -> AsyncConnection[Any]:
        connection = await AsyncConnection.connect(postgres_url)
        await connection.set_isolation_level(IsolationLevel[level.replace(" ", "_")])
        return connection

    given: Transactions
    if library.startswith("sqlalchemy-") and library != "sqlalchemy-plain":
        driver = dialect.replace("+psycopg", f"+{library.removeprefix('sqlalchemy-')}")
        given = AsyncSessions(async_sessionmaker(create_async_engine(driver, isolation_level=level)))
    elif library == "psycopg":
        given = AsyncConnections(connect_async)
    elif library == "sqlalchemy-plain":
        given = Sessions(sessionmaker(create_engine(dialect, isolation_level=level)))
    else:
        given = Connections(connect)
    site.inbox.transactions = (given,)

    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[Any]) -> None:
        """Never runs."""

    await site.deliver(stripe_event("evt", "a"))
    with pytest.raises(ConfigError, match=f"isolation level {level}.*READ COMMITTED"):
        await site.work()
    [row] = await site.events()
    assert (row.state, row.attempts) == (State.PENDING, 0)


async def test_refused_when_it_is_first_seen(site: Site, postgres_url: str) -> None:
    """A configuration error burns no attempt: with the level put right, the event is processed as if new."""
    level = None

    def connect() -> Connection[Any]:
        connection = Connection.connect(postgres_url)
        connection.isolation_level = level
        return connection

    site.inbox.transactions = (Connections(connect),)

    @site.inbox.sources["stripe"].on("*")
    def handle(event: SyncEvent[Connection[Any]]) -> None:
        event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])

    worker = asyncio.create_task(site.inbox.work())
    await site.deliver(stripe_event("evt_1", "a"))
    while await done(site) != ["evt_1"]:
        await asyncio.sleep(0.05)
    level = IsolationLevel.SERIALIZABLE
    await site.deliver(stripe_event("evt_2", "a"))
    while (row := (await site.event("evt_2")).event).state is not State.RETRYING:
        await asyncio.sleep(0.05)
    assert row.attempts == 0
    assert "isolation level SERIALIZABLE" in (row.reason or "")
    level = None
    while await done(site) != ["evt_1", "evt_2"]:
        await asyncio.sleep(0.05)
    worker.cancel()
    await asyncio.wait([worker])
    row = (await site.event("evt_2")).event
    assert (row.state, row.attempts) == (State.PROCESSED, 1)


async def test_our_own_transaction_has_its_level_whatever_the_role_has(site: Site) -> None:
    """A handler that renews its lease, in a database where transactions are repeatable by default."""

    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        await event.renew()

    async with site.inbox.opened(handlers=1) as store:
        tx = store.transaction()
        name = await tx.tx.fetchval("SELECT quote_ident(current_database())")
        await tx.tx.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        await tx.commit([])
    await site.deliver(stripe_event("evt", "a"))
    await site.work()
    [row] = await site.events()
    assert (row.state, row.attempts) == (State.PROCESSED, 1), row.reason


async def test_read_committed_renews(site: Site, postgres_url: str) -> None:
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    site.inbox.transactions = (AsyncSessions(async_sessionmaker(engine)),)

    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[AsyncSession]) -> None:
        await event.tx.execute(text("INSERT INTO done VALUES ('kept')"))
        await event.renew()

    await site.deliver(stripe_event("evt", "a"))
    await site.work()
    assert await done(site) == ["kept"]
    await engine.dispose()
