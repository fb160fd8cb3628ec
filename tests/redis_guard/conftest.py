"""A Valkey server for the session, emptied before each test, and one that a test may kill."""

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis import Guard, Lease
from tests.services.valkey import Valkey


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """A server for this test alone, which keeps nothing over a restart."""
    with Valkey() as server:
        yield server


@pytest.fixture
async def client(shared_valkey: Valkey) -> AsyncIterator[Redis]:
    async with Redis.from_url(shared_valkey.url) as redis:
        await redis.flushall()
        await redis.script_flush()
        yield redis


class MakeGuard(Protocol):
    def __call__(self, client: Redis, **options: Any) -> Guard: ...


@pytest.fixture
def make_guard() -> MakeGuard:
    def make(client: Redis, **options: Any) -> Guard:
        return Guard(client, **{"away": "closed", "lease": "30s", "timeout": "9s"} | options)

    return make


class Work:
    """Counts its runs; each has another answer."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, lease: Lease) -> bytes:
        self.runs += 1
        return uuid.uuid4().bytes


@pytest.fixture
def work() -> Work:
    return Work()


CALL: dict[str, Any] = {"caller": "acme", "source": "orders", "key": "k-1", "fingerprint": b"{}", "repeat": "safe"}
