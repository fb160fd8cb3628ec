"""One suite, every store: each test here runs unchanged on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import Raw

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture
def clock() -> Clock:
    """The stores' clock; move its `offset` to let time pass."""
    return Clock()


@pytest.fixture
async def open_store(database_url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    """Opens one more store on the same database, as another process would."""
    async with AsyncExitStack() as stack:

        async def opened() -> Store:
            store = connect(database_url, clock=clock)
            await store.open(handlers=8)
            stack.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """A migrated, open store."""
    return await open_store()


@pytest.fixture
def raw(store: Store) -> Raw:
    return Raw(store)
