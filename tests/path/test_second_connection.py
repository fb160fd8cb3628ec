"""A handler that writes on a connection of its own is named once; whoever reads, or writes with event.tx, is not."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from hookledger import Event, Op, State, SyncEvent
from hookledger.contrib.sqlalchemy import AsyncSessions
from hookledger.observe import second_connection
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

WRITE = text("INSERT INTO done VALUES (:what)")
READ = text("SELECT count(*) FROM done")


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test hears of its own handlers."""
    monkeypatch.setattr(second_connection, "_said", set())


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str) -> Site:
    made = await site_on(postgres_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    made = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    made.dispose()


@pytest.fixture
async def async_engine(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    yield made
    await made.dispose()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "through its own" in line or "two SQLite libraries" in line]


async def run(site: Site, *kinds: str) -> None:
    for kind in kinds:
        await site.deliver(stripe_event(f"evt_{kind}", kind))
    await site.work()
    assert {row.state for row in await site.events()} == {State.PROCESSED}


async def test_sqlalchemy(
    site: Site, engine: Engine, async_engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    stripe = site.inbox.sources["stripe"]

    @stripe.on("plain", "plain.again")
    def plain(event: SyncEvent) -> None:
        with engine.begin() as connection:
            connection.execute(WRITE, {"what": event.type})

    @stripe.on("async")
    async def with_session(event: Event) -> None:
        async with AsyncSession(async_engine) as session:
            await session.execute(WRITE, {"what": "async"})
            await session.commit()

    await run(site, "plain", "plain.again", "async")
    assert await done(site) == ["async", "plain", "plain.again"]
    name = "test_sqlalchemy.<locals>"
    assert sorted(line.partition(":")[0] for line in said(caplog)) == [
        f"handler {name}.plain writes through its own SQLAlchemy connection",
        f"handler {name}.with_session writes through its own SQLAlchemy connection",
    ]


async def test_honest_uses_of_sqlalchemy(
    site: Site, engine: Engine, async_engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    site.inbox.transactions = (AsyncSessions(async_sessionmaker(async_engine)),)
    stripe = site.inbox.sources["stripe"]

    @site.inbox.effect(repeat="safe")
    def save(op: Op, what: str) -> None:
        with engine.begin() as connection:
            connection.execute(WRITE, {"what": what})

    @stripe.on("reads")
    def reads(event: SyncEvent) -> None:
        with engine.begin() as connection:
            connection.execute(READ)

    @stripe.on("undone")
    def undone(event: SyncEvent) -> None:
        with engine.connect() as connection:
            connection.execute(WRITE, {"what": "undone"})
            connection.rollback()

    @stripe.on("calls")
    async def calls(event: Event[AsyncSession]) -> None:
        await event.call(save, "k", "called")

    @stripe.on("adapter")
    async def adapter(event: Event[AsyncSession]) -> None:
        await event.tx.execute(WRITE, {"what": "tx"})

    @stripe.on("long", transaction=False)
    def long(event: SyncEvent) -> None:
        with engine.begin() as connection:
            connection.execute(WRITE, {"what": "long"})

    await run(site, "reads", "undone", "calls", "adapter", "long")
    assert await done(site) == ["called", "long", "tx"]
    assert said(caplog) == []


async def test_sqlite3_on_the_inboxs_own_file(
    site_on: MakeSite, sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = await site_on(sqlite_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    file, other = tmp_path / "inbox.db", tmp_path / "other.db"
    opened: list[Any] = []  # until the end: to close one here is what does the damage

    @stripe.on("other")
    def elsewhere(event: SyncEvent) -> None:
        opened.append(sqlite3.connect(other))

    @stripe.on("own")
    def own(event: SyncEvent) -> None:
        opened.append(sqlite3.connect(file, check_same_thread=False))
        opened.append(sqlite3.connect(f"file:{file}?mode=ro", uri=True, check_same_thread=False))

    await run(site, "other")
    assert said(caplog) == []
    await run(site, "own")
    assert len(said(caplog)) == 2
    assert all(line.startswith(f"{__file__}:") and "write with event.tx" in line for line in said(caplog))
    caplog.clear()
    opened.append(sqlite3.connect(file))  # nobody else has it open now
    assert said(caplog) == []


def test_a_lost_connection_raises_what_it_would(engine: Engine) -> None:
    """Whoever listens to a rollback must not ask a connection that is gone."""
    second_connection.watch_libraries()
    with pytest.raises(OperationalError), engine.begin() as connection:
        [pid] = connection.execute(text("SELECT pg_backend_pid()")).one()
        with engine.begin() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        connection.execute(READ)
