"""Behind a real PgBouncer in transaction mode: what works, and which setting an error names."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from hookledger import Answer, Event, Inbox, State, SyncEvent
from hookledger.config import decode
from hookledger.contrib.psycopg import Connections
from hookledger.contrib.sqlalchemy import AsyncSessions
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done
from tests.services.pgbouncer import PgBouncer

RETRY = {"initial_delay": "10ms", "max_delay": "50ms"}
MakeInbox = Callable[..., Inbox]


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str) -> Site:
    """Straight at the database, to deliver and to look."""
    made = await site_on(postgres_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@pytest.fixture
def through(site: Site, pgbouncer: PgBouncer) -> MakeInbox:
    """The same inbox through the pooler."""

    def make(*, pooler: bool, **options: Any) -> Inbox:
        work = {"poll": "10ms", "concurrency": 8, "shutdown_timeout": "1s", "retry": RETRY}
        inbox = Inbox(pgbouncer.url(), settings=decode({"pooler": pooler, "work": work}), **options)
        inbox.source("stripe", provider="stripe", secrets=[SECRET])
        return inbox

    return make


@pytest.fixture
async def pool(pgbouncer: PgBouncer) -> AsyncIterator[Callable[..., ConnectionPool[Connection[Any]]]]:
    made: list[ConnectionPool[Connection[Any]]] = []

    def make(**kwargs: Any) -> ConnectionPool[Connection[Any]]:
        made.append(ConnectionPool(pgbouncer.url(), min_size=8, max_size=8, kwargs=kwargs, open=True))
        return made[0]

    yield make
    for one in made:
        one.close()


async def deliver(site: Site, count: int) -> None:
    for n in range(count):
        await site.deliver(stripe_event(f"evt_{n:03}", "a"))


async def works_until(inbox: Inbox, said: Callable[[], Any]) -> None:
    worker = asyncio.create_task(inbox.work())
    while not await said():
        assert not worker.done(), worker
        await asyncio.sleep(0.05)
    worker.cancel()
    await asyncio.wait([worker])


async def test_without_the_setting_the_errors_name_it(
    site: Site, through: MakeInbox, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, and in the reason of an event whose handler met it."""
    inbox = through(pooler=False)

    @inbox.sources["stripe"].on("a")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        await event.tx.fetch("SELECT what FROM done WHERE what = $1", event.key)

    await deliver(site, 60)
    words = "behind a transaction pooler set pooler = true"

    async def said() -> bool:
        rows = await site.events()
        logged = [f"{record.getMessage()} {vars(record).get('reason')}" for record in caplog.records]
        return words in " ".join(logged) and any(words in (row.reason or "") for row in rows)

    with caplog.at_level(logging.WARNING):
        await works_until(inbox, said)


async def test_psycopg_that_prepares(site: Site, through: MakeInbox, pool: Any) -> None:
    inbox = through(pooler=True, transactions=Connections(pool()))

    @inbox.sources["stripe"].on("a")
    def handle(event: SyncEvent[Connection[Any]]) -> None:
        for _ in range(8):  # psycopg prepares what it has seen five times
            event.tx.execute("SELECT what FROM done WHERE what = %s", [event.key])

    await deliver(site, 60)

    async def said() -> bool:
        return any("prepare_threshold=None" in (row.reason or "") for row in await site.events())

    await works_until(inbox, said)


async def test_psycopg_that_does_not(site: Site, through: MakeInbox, pool: Any) -> None:
    inbox = through(pooler=True, transactions=Connections(pool(prepare_threshold=None)))

    @inbox.sources["stripe"].on("a")
    def handle(event: SyncEvent[Connection[Any]]) -> None:
        for _ in range(8):
            event.tx.execute("SELECT what FROM done WHERE what = %s", [event.key])
        if event.once("credit", event.key):
            event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])

    await deliver(site, 60)
    await inbox.work(drain=True)
    assert {(row.state, row.attempts) for row in await site.events()} == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 60


async def test_sqlalchemy_that_prepares(site: Site, through: MakeInbox, pgbouncer: PgBouncer) -> None:
    engine = create_async_engine(pgbouncer.url().replace("postgresql://", "postgresql+asyncpg://"))
    inbox = through(pooler=True, transactions=AsyncSessions(async_sessionmaker(engine)))

    @inbox.sources["stripe"].on("a")
    async def handle(event: Event[AsyncSession]) -> None:
        await event.tx.execute(text("INSERT INTO done VALUES (:what)"), {"what": event.key})

    await deliver(site, 60)

    async def said() -> bool:
        return any("prepared_statement_name_func" in (row.reason or "") for row in await site.events())

    await works_until(inbox, said)
    await engine.dispose()


async def test_sqlalchemy_as_the_error_says(site: Site, through: MakeInbox, pgbouncer: PgBouncer) -> None:
    engine = create_async_engine(
        pgbouncer.url().replace("postgresql://", "postgresql+asyncpg://"),
        poolclass=NullPool,
        connect_args={"statement_cache_size": 0, "prepared_statement_name_func": lambda: f"__{uuid4()}__"},
    )
    inbox = through(pooler=True, transactions=AsyncSessions(async_sessionmaker(engine)))

    @inbox.sources["stripe"].on("a")
    async def handle(event: Event[AsyncSession]) -> None:
        if await event.once("credit", event.key):
            await event.tx.execute(text("INSERT INTO done VALUES (:what)"), {"what": event.key})

    await deliver(site, 30)
    await inbox.work(drain=True)
    assert {(row.state, row.attempts) for row in await site.events()} == {(State.PROCESSED, 1)}
    assert len(await done(site)) == 30
    await engine.dispose()


async def test_a_handler_that_commits_is_found_out_there_too(site: Site, through: MakeInbox) -> None:
    inbox = through(pooler=True)

    @inbox.sources["stripe"].on("a")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        await event.tx.execute("COMMIT; BEGIN")
        await event.tx.execute("INSERT INTO nowhere VALUES (1)")

    await deliver(site, 20)
    await inbox.work(drain=True)
    assert {row.state for row in await site.events()} == {State.NEEDS_REVIEW}
    assert len(await done(site)) == 20


@pytest.mark.parametrize("writes", [True, False])
async def test_handlers_answer(site: Site, through: MakeInbox, writes: bool) -> None:
    """Those of many events together, and those that other processes wait for."""
    inboxes, ran = [through(pooler=True), through(pooler=True)], []

    async def handle(event: Event) -> Answer:
        ran.append(event.key)
        if writes:
            await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        await asyncio.sleep(0.05)
        return Answer({"event": event.key, "run": len(ran)})

    sites = []
    for inbox in inboxes:
        inbox.sources["stripe"].answer("a", deadline=30)(handle)
        sites.append(Site(inbox))
    names = [f"evt_{n:03}" for n in range(40)]
    sent = [one.deliver(stripe_event(name, "a")) for name in names for one in sites for _ in range(2)]
    bodies: dict[str, set[bytes]] = {name: set() for name in names}
    for answer in await asyncio.gather(*sent):
        assert answer.status == 200
        bodies[answer.json["event"]].add(answer.body)
    assert sorted(ran) == names
    assert {len(found) for found in bodies.values()} == {1}
    for one in inboxes:
        await one.asgi.stop()
