"""An inbox on a migrated database, whose handlers count in a table of their own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

from hookledger import Config, Inbox
from hookledger.config import decode
from hookledger.errors import SchemaMismatch
from hookledger.model import Outcome
from hookledger.receive import answering
from hookledger.work.lease import Leases
from hookledger.work.outcome import Settler
from tests.asgi_client import Site

SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM="
MakeSite = Callable[..., Awaitable[Site]]
HeardLate = tuple[asyncio.Event, threading.Event]


@pytest.fixture
async def site_on() -> AsyncIterator[MakeSite]:
    """Make a site on a database, with a table `done (what TEXT)`; it is closed after the test."""
    async with AsyncExitStack() as stack:

        async def make(database: str, settings: dict[str, Any] | None = None) -> Site:
            chosen: Config = decode({"work": {"poll": "10ms"}, **(settings or {})})
            inbox = Inbox(database, settings=chosen)
            try:
                await make_table(inbox)
            except SchemaMismatch:  # a server of the test's own
                await inbox.migrate()
                await make_table(inbox)
            stack.push_async_callback(inbox.asgi.stop)
            return Site(inbox)

        yield make


async def make_table(inbox: Inbox) -> None:
    async with inbox.opened(handlers=1) as store:
        transaction = store.transaction()
        await transaction.tx.execute("CREATE TABLE done (what TEXT)")
        await transaction.commit([])


@pytest.fixture
async def site(site_on: MakeSite, sqlite_url: str) -> Site:
    """With sources `stripe` and `github` and no handlers, on SQLite."""
    made = await site_on(sqlite_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    made.inbox.source("github", provider="github", secrets=[SECRET])
    return made


async def done(site: Site) -> list[str]:
    """What handlers wrote, sorted."""
    async with site.inbox.opened(handlers=1, check=False) as store:
        transaction = store.transaction()
        rows = await transaction.tx.fetch("SELECT what FROM done ORDER BY what")
        await transaction.rollback()
        return [row[0] for row in rows]


@pytest.fixture
def recorded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline that passes before the delivery is recorded passes just after that: the machine may be busy."""
    too_late = answering._Pending.too_late

    def late(self: answering._Pending) -> None:
        if self._recorded is None and not self._over:
            self.timer = asyncio.get_running_loop().call_later(0.01, self.too_late)
        else:
            too_late(self)

    monkeypatch.setattr(answering._Pending, "too_late", late)


@pytest.fixture
def heard_late(monkeypatch: pytest.MonkeyPatch) -> HeardLate:
    """The first is set when an outcome is committed and the loop has not heard of it; the second, in another thread,
    when the heartbeat gave up its claim."""
    committed, given_up = asyncio.Event(), threading.Event()
    settle, lose = Settler.settle, Leases._lose

    async def settled(self: Settler, way: Outcome) -> bool:
        mine = await settle(self, way)
        committed.set()
        for _ in range(3):
            await asyncio.sleep(0)
        return mine

    def lost(self: Leases, ident: UUID) -> None:
        lose(self, ident)
        given_up.set()

    monkeypatch.setattr(Settler, "settle", settled)
    monkeypatch.setattr(Leases, "_lose", lost)
    return committed, given_up
