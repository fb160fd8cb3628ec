"""An inbox whose handlers write in the application's own sessions."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from hookledger import ConfigError, Event, State, SyncEvent
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.store.protocol import Statements
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

WRITE = text("INSERT INTO done VALUES (:what)")


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str) -> AsyncIterator[Site]:
    """With sessions for async handlers and for plain functions."""
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    engine, async_engine = create_engine(url), create_async_engine(url.replace("+psycopg", "+asyncpg"))
    made = await site_on(postgres_url)
    made.inbox.transactions = (AsyncSessions(async_sessionmaker(async_engine)), Sessions(sessionmaker(engine)))
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    yield made
    await async_engine.dispose()
    engine.dispose()


async def test_each_kind_of_handler_has_its_own_session(site: Site) -> None:
    stripe = site.inbox.sources["stripe"]

    @stripe.on("a")
    async def handle(event: Event[AsyncSession]) -> None:
        assert isinstance(event.tx, AsyncSession)
        if await event.once("credit", "k"):
            await event.tx.execute(WRITE, {"what": "async"})

    @stripe.on("b")
    def plain(event: SyncEvent[Session]) -> None:
        assert isinstance(event.tx, Session)
        if event.once("credit", "k2"):
            event.tx.execute(WRITE, {"what": "plain"})
        raise_once(event)

    @stripe.on("c", transaction=False)
    async def without(event: Event[Statements]) -> None:
        """Needs no connection at all."""

    def raise_once(event: SyncEvent[Any]) -> None:
        if event.attempt == 1:
            raise ConnectionError("once")

    for kind in "abc":
        await site.deliver(stripe_event(f"evt_{kind}", kind))
    await site.work()
    await site.work(later=3600)
    assert await done(site) == ["async", "plain"]
    assert {row.state for row in await site.events()} == {State.PROCESSED}


async def test_a_handler_that_commits_needs_review(site: Site) -> None:
    stripe = site.inbox.sources["stripe"]

    @stripe.on("a")
    async def handle(event: Event[AsyncSession]) -> None:
        async with event.tx as session:
            await session.execute(WRITE, {"what": "by itself"})
            await session.commit()

    await site.deliver(stripe_event("evt", "a"))
    await site.work()
    [row] = await site.events()
    assert row.state is State.NEEDS_REVIEW
    assert await done(site) == ["by itself"]


async def test_a_plain_function_over_its_time(site: Site) -> None:
    stripe, go_on, late = site.inbox.sources["stripe"], threading.Event(), list[str]()

    @stripe.on("a", timeout=1.0)
    def handle(event: SyncEvent[Session]) -> None:
        event.tx.execute(WRITE, {"what": str(event.attempt)})
        if event.attempt == 1:
            assert go_on.wait(30)
            try:
                event.tx.execute(WRITE, {"what": "late"})
                event.tx.commit()
            except Exception as error:
                late.append(type(error).__name__)

    await site.deliver(stripe_event("evt", "a"))
    await site.work()
    [row] = await site.events()
    assert row.state is State.RETRYING
    await site.work(later=3600)
    go_on.set()
    while not late:
        await asyncio.sleep(0.01)
    assert await done(site) == ["2"]


async def test_sqlite_is_refused_at_start_up(site_on: MakeSite, sqlite_url: str) -> None:
    made = await site_on(sqlite_url)
    made.inbox.transactions = (Sessions(sessionmaker(create_engine("sqlite://"))),)
    with pytest.raises(ConfigError, match="second SQLite on one file"):
        await made.inbox.work(drain=True)
