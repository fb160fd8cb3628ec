"""Handlers in the application's own library: a thread of their own each, and no start without a connection."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, AsyncNullConnectionPool, ConnectionPool, NullConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from hookledger import Event, State, SyncEvent
from hookledger.contrib.psycopg import AsyncConnections, Connections
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.operate.doctor.checks import pools
from hookledger.store.protocol import Transactions
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

MakePool = Callable[..., ConnectionPool[Connection[Any]]]


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str) -> Site:
    # Two cores have six threads in the event loop's own executor; here there is no machine with more.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    made = await site_on(postgres_url, {"work": {"poll": "10ms", "concurrency": 16}})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@pytest.fixture
async def pool(site: Site, postgres_url: str) -> AsyncIterator[MakePool]:
    """A pool of so many connections, which the inbox uses for plain functions."""
    made: list[ConnectionPool[Connection[Any]]] = []

    def make(size: int, **options: Any) -> ConnectionPool[Connection[Any]]:
        pool = ConnectionPool(postgres_url, **{"min_size": 1, "max_size": size, "open": True, **options})
        made.append(pool)
        pool.wait(60)
        site.inbox.transactions = (Connections(pool),)
        return pool

    yield make
    for one in made:
        one.close()


async def deliver(site: Site, kind: str, count: int) -> None:
    for n in range(count):
        await site.deliver(stripe_event(f"evt_{kind}_{n}", kind))


async def attempts(site: Site) -> set[tuple[State, int]]:
    async with site.inbox.opened() as store:
        return {(row.state, row.attempts) for row in await store.search.events(limit=500)}


async def test_sixteen_ask_once_for_one_key(site: Site, pool: MakePool) -> None:
    """Fifteen wait in the database for the one that has the key, and it must still be able to commit."""
    pool(16)
    together = threading.Barrier(16, timeout=60)

    @site.inbox.sources["stripe"].on("a", timeout=65)
    def handle(event: SyncEvent[Connection[Any]]) -> None:
        together.wait()
        if event.once("credit", "k"):
            event.tx.execute("INSERT INTO done VALUES ('credit')")

    await deliver(site, "a", 16)
    await site.work()
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert await done(site) == ["credit"]


async def test_a_pool_of_four(site: Site, pool: MakePool, caplog: pytest.LogCaptureFixture) -> None:
    """Four handlers at a time; the others wait unstarted, however short the pool's own patience is."""
    pool(4, timeout=0.3, min_size=4)  # no connection is made within that time
    lock, running, most = threading.Lock(), 0, 0
    began: list[str] = []

    @site.inbox.sources["stripe"].on("a")
    def handle(event: SyncEvent[Connection[Any]]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            began.append(event.key)
            long = len(began) <= 12
        time.sleep(0.4 if long else 0.01)  # longer than whoever waits for a connection would be let wait
        event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])
        with lock:
            running -= 1

    await deliver(site, "a", 200)
    with caplog.at_level(logging.WARNING):
        await site.work()
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 200
    assert most == 4
    assert "Connections: its pool has 4 connections and concurrency is 16" in caplog.text
    async with site.inbox.opened() as store:
        [found] = await pools(site.inbox.context(store))
    assert found.says in caplog.text
    assert found.do == "give the pool 16 connections, or lower concurrency"


async def test_an_async_pool_of_four(site: Site, postgres_url: str) -> None:
    running = most = begun = 0

    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[AsyncConnection[Any]]) -> None:
        nonlocal running, most, begun
        running, begun = running + 1, begun + 1
        most = max(most, running)
        await asyncio.sleep(0.4 if begun <= 12 else 0.01)
        await event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])
        running -= 1

    await deliver(site, "a", 200)
    async with AsyncConnectionPool(postgres_url, min_size=4, max_size=4, timeout=0.3) as pool:
        await pool.wait(60)
        site.inbox.transactions = (AsyncConnections(pool),)
        await site.work()
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 200
    assert most == 4


async def test_handlers_that_need_no_connection_continue(site: Site, pool: MakePool) -> None:
    """Those that wait for the pool do not take the worker's slots."""
    pool(1)
    go_on = threading.Event()

    @site.inbox.sources["stripe"].on("a")
    def waits(event: SyncEvent[Connection[Any]]) -> None:
        assert go_on.wait(60)

    @site.inbox.sources["stripe"].on("b", transaction=False)
    async def free(event: Event[Any]) -> None:
        seen.append(event.key)
        if len(seen) == 20:
            go_on.set()

    seen: list[str] = []
    await deliver(site, "a", 20)
    await deliver(site, "b", 20)
    await site.work()
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert len(seen) == 20


async def test_a_pool_that_others_have_emptied(site: Site, pool: MakePool) -> None:
    """No attempt is burnt on a connection that was not to be had, and the event says why it waits."""
    shared = pool(2, timeout=0.2)

    @site.inbox.sources["stripe"].on("first")
    @site.inbox.sources["stripe"].on("a", batch=2)
    def handle(event: SyncEvent[Connection[Any]]) -> None:
        event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])

    worker = asyncio.create_task(site.inbox.work())
    await deliver(site, "first", 1)
    while await done(site) != ["evt_first_0"]:
        await asyncio.sleep(0.05)
    taken = [shared.getconn(60), shared.getconn(60)]
    await deliver(site, "a", 3)
    while not (waiting := [row for row in await site.events() if row.state is State.RETRYING]):
        await asyncio.sleep(0.05)
    assert {row.attempts for row in waiting} == {0}
    assert all("not started: no transaction: PoolTimeout" in (row.reason or "") for row in waiting)
    for connection in taken:
        shared.putconn(connection)
    while {row.state for row in await site.events()} != {State.PROCESSED}:
        await asyncio.sleep(0.05)
    worker.cancel()
    await asyncio.wait([worker])
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 4


async def test_sqlalchemys_default_engine(site: Site, postgres_url: str) -> None:
    """Five connections and ten more: fifteen handlers at a time, of thirty-two."""
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"), pool_timeout=0.5)
    site.inbox.transactions = (Sessions(sessionmaker(engine)),)

    @site.inbox.sources["stripe"].on("a")
    def handle(event: SyncEvent[Session]) -> None:
        time.sleep(0.6)
        event.tx.execute(text("INSERT INTO done VALUES (:what)"), {"what": event.key})

    await deliver(site, "a", 40)
    await site.inbox.work(drain=True, settings=msgspec.structs.replace(site.inbox.settings.work, concurrency=32))
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 40
    engine.dispose()


async def test_null_pools(site: Site, postgres_url: str) -> None:
    """No limit of their own: as many handlers as the worker's concurrency allows."""
    stripe = site.inbox.sources["stripe"]

    @stripe.on("plain")
    def handle_plain(event: SyncEvent[Connection[Any]]) -> None:
        event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])

    @stripe.on("async")
    async def handle(event: Event[AsyncConnection[Any]]) -> None:
        await event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])

    await deliver(site, "plain", 20)
    await deliver(site, "async", 20)
    with NullConnectionPool(postgres_url) as pool:
        async with AsyncNullConnectionPool(postgres_url) as async_pool:
            site.inbox.transactions = (Connections(pool), AsyncConnections(async_pool))
            async with asyncio.timeout(60):
                await site.work()
    assert await attempts(site) == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 40


def test_how_many_transactions_a_library_can_have_open(postgres_url: str) -> None:
    dialect = "postgresql+psycopg:///app"
    known: list[tuple[Transactions, int | None]] = [
        (Connections(ConnectionPool(postgres_url, open=False)), 4),
        (Connections(ConnectionPool(postgres_url, min_size=2, max_size=9, open=False)), 9),
        (Connections(NullConnectionPool(postgres_url, open=False)), None),
        (Connections(NullConnectionPool(postgres_url, max_size=3, open=False)), 3),
        (Connections(postgres_url), None),
        (AsyncConnections(AsyncConnectionPool(postgres_url, max_size=7, open=False)), 7),
        (AsyncConnections(AsyncNullConnectionPool(postgres_url, open=False)), None),
        (AsyncConnections(AsyncNullConnectionPool(postgres_url, max_size=3, open=False)), 3),
        (AsyncConnections(lambda: AsyncConnection.connect(postgres_url)), None),
        (Sessions(sessionmaker(create_engine(dialect))), 15),
        (Sessions(sessionmaker(create_engine(dialect, pool_size=3, max_overflow=0))), 3),
        (Sessions(sessionmaker(create_engine(dialect, pool_size=0))), None),
        (Sessions(sessionmaker(create_engine(dialect, max_overflow=-1))), None),
        (Sessions(sessionmaker(create_engine(dialect, poolclass=NullPool))), None),
        (Sessions(sessionmaker()), None),
        (AsyncSessions(async_sessionmaker(create_async_engine(dialect, pool_size=2, max_overflow=1))), 3),
    ]
    assert [(type(given).__name__, given.size) for given, _ in known] == [
        (type(given).__name__, size) for given, size in known
    ]
