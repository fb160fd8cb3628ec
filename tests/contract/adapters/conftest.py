"""One suite, every library, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import Raw
from tests.contract.adapters.libraries import LIBRARIES, TABLE, Library, made


@pytest.fixture
async def store(postgres_url: str, clock: Clock) -> AsyncIterator[Store]:
    store = connect(postgres_url, clock=clock)
    await store.open(handlers=8)
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture(params=LIBRARIES)
async def library(
    request: pytest.FixtureRequest, store: Store, raw: Raw, postgres_url: str
) -> AsyncIterator[Library]:
    await raw.run(TABLE)
    async for transactions in made(request.param, postgres_url):
        yield Library(request.param, transactions, store)


@pytest.fixture(params=LIBRARIES[1:])
async def theirs(request: pytest.FixtureRequest, store: Store, raw: Raw, postgres_url: str) -> AsyncIterator[Library]:
    """Every library but our own."""
    await raw.run(TABLE)
    async for transactions in made(request.param, postgres_url):
        yield Library(request.param, transactions, store)
