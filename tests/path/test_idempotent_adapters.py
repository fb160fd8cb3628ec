"""Guarded routes that write in the application's own sessions, and plain functions."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from hookledger import Event, Idempotent, Inbox, SyncEvent, current_event
from hookledger.contrib.psycopg import AsyncConnections
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from tests.asgi_client import Answer, Site, ask
from tests.path.conftest import MakeSite, done

WRITE = text("INSERT INTO done VALUES (:what)")
KEY = [("Idempotency-Key", '"k-1"')]


class Api:
    """An application with one guarded route, which fails at its first run, after it has written."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.app = FastAPI()
        self.runs = 0
        self.guard: Idempotent | None = None

    def start(self, **options: Any) -> None:
        self.guard = self.site.inbox.idempotent("api", caller=lambda scope: 7, routes=["POST /orders"], **options)
        self.app.add_middleware(self.guard)

    def fail_once(self) -> None:
        self.runs += 1
        if self.runs == 1:
            raise ConnectionError("made up")

    async def ask(self) -> Answer:
        return await ask(self.app, "POST", "/orders", b'{"item": "tea"}', KEY)

    async def check(self) -> None:
        """The first run is rolled back, the second commits, and the third request gets its answer."""
        with pytest.raises(ConnectionError):
            await self.ask()
        assert await done(self.site) == []
        assert (await self.ask()).json == (await self.ask()).json == {"item": "tea"}
        assert await done(self.site) == ["tea"]
        assert self.runs == 2


MakeApi = Callable[[str], Awaitable[Api]]


@pytest.fixture
async def api_on(site_on: MakeSite) -> AsyncIterator[MakeApi]:
    made: list[Api] = []

    async def make(url: str) -> Api:
        made.append(Api(await site_on(url)))
        return made[-1]

    yield make
    for api in made:
        if api.guard is not None:
            await api.guard.stop()


async def test_a_route_writes_in_a_session_of_sqlalchemy(api_on: MakeApi, postgres_url: str) -> None:
    api = await api_on(postgres_url)
    engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    api.site.inbox.transactions = (AsyncSessions(async_sessionmaker(engine)),)
    api.start()

    @api.app.post("/orders")
    async def order(request: Request) -> Any:
        event: Event[AsyncSession] = current_event(request)
        await event.tx.execute(WRITE, {"what": event.json["item"]})
        api.fail_once()
        return event.json

    await api.check()
    await engine.dispose()


async def test_a_route_writes_in_a_connection_of_psycopg(api_on: MakeApi, postgres_url: str) -> None:
    api = await api_on(postgres_url)
    pool = AsyncConnectionPool(postgres_url, open=False)
    api.site.inbox.transactions = (AsyncConnections(pool),)
    api.start()

    @api.app.post("/orders")
    async def order(request: Request) -> Any:
        event: Event[Any] = current_event(request)
        await event.tx.execute("INSERT INTO done VALUES (%s)", (event.json["item"],))
        api.fail_once()
        return event.json

    await api.check()
    assert api.guard is not None
    await api.guard.stop()
    await pool.close()


async def test_a_plain_route_writes_in_a_session_of_sqlalchemy(api_on: MakeApi, postgres_url: str) -> None:
    api = await api_on(postgres_url)
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    api.site.inbox.transactions = (Sessions(sessionmaker(engine)),)
    api.start(plain=True)

    @api.app.post("/orders")
    def order(request: Request) -> Any:
        event: SyncEvent[Session] = current_event(request)
        event.tx.execute(WRITE, {"what": event.json["item"]})
        api.fail_once()
        return event.json

    await api.check()
    engine.dispose()


async def test_a_plain_route_writes_in_the_events_own_transaction(api_on: MakeApi, database_url: str) -> None:
    api = await api_on(database_url)
    api.start(plain=True)

    @api.app.post("/orders")
    def order(request: Request) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        event: SyncEvent = current_event(request)
        event.tx.execute("INSERT INTO done VALUES ($1)", event.json["item"])
        api.fail_once()
        return event.json

    await api.check()


async def test_on_sqlite_a_route_within_the_transaction_limit_only(api_on: MakeApi, sqlite_url: str) -> None:
    api = await api_on(sqlite_url)
    api.start(repeat="transaction")

    @api.app.post("/orders")
    async def order(request: Request) -> Any:
        event: Event = current_event(request)
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.json["item"])
        api.runs += 1
        if api.runs == 1:
            await asyncio.sleep(3.0)
            await event.tx.execute("INSERT INTO done VALUES ($1)", "late")
        return event.json

    answer = await api.ask()
    assert (answer.status, await done(api.site)) == (503, [])
    assert (await api.ask()).status == 200
    assert await done(api.site) == ["tea"]


async def test_on_postgres_a_route_is_not_idle_in_its_transaction_for_longer_than_its_lease(
    api_on: MakeApi, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = await api_on(postgres_url)
    api.start(lease="500ms")
    idle = True

    @api.app.post("/orders")
    async def order(request: Request) -> Any:
        event: Event = current_event(request)
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.json["item"])
        if idle:
            await asyncio.sleep(2)
        await event.tx.execute("SELECT 1")
        return {}

    assert (await api.ask()).status == 503
    assert "for guarded routes lease= of the guard" in caplog.text
    assert await done(api.site) == []
    idle = False
    assert (await api.ask()).status == 200
    assert await done(api.site) == ["tea"]


async def test_without_a_database_a_guarded_route_is_503(tmp_path: Path) -> None:
    inbox = Inbox(f"sqlite:///{tmp_path}/nothing/inbox.db")
    guard = inbox.idempotent("api", caller=lambda scope: 7, routes=["POST /orders"])
    app = FastAPI()
    app.add_middleware(guard)
    answer = await ask(app, "POST", "/orders", b"{}", KEY)
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    await guard.stop()
