"""One suite, every store: each test here runs unchanged on SQLite and on PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import Raw
from tests.services.postgres import Databases

EMPTY = """DO $$ BEGIN
    SET LOCAL lock_timeout = '10s';
    DROP SCHEMA IF EXISTS hookledger CASCADE;
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public;
END $$"""

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture(scope="module")
def shared_postgres_url(postgres: Databases) -> Iterator[str]:
    name = f"hookledger_contract_{uuid.uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(shared_postgres_url: str) -> str:
    """An empty PostgreSQL database. Emptied, not created, for each test: with fsync on that is ten times as fast."""
    Databases(shared_postgres_url).execute(EMPTY)
    return shared_postgres_url


@pytest.fixture
def clock() -> Clock:
    """The stores' clock; move its `offset` to let time pass."""
    return Clock()


@pytest.fixture
async def open_store(database_url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    """Opens one more store on the same database, as another process would; not migrated."""
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
    store = await open_store()
    await store.migrate()
    return store


@pytest.fixture
def raw(store: Store) -> Raw:
    return Raw(store)
