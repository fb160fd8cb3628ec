"""What a published key may cost: so many bytes, and so much memory for those that are none."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hookledger.errors import Unauthentic, Unavailable
from hookledger.providers.schemes.base import KeyNeeded, Where
from hookledger.receive.key_budget import BUDGET, FOR_STRANGERS, MAX_CLIENTS
from hookledger.receive.keyring import MAX_BYTES, MAX_ENTRIES, Fetched

from .https_server import JWKS, Server, answer, contexts

HOST = "www.googleapis.com"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts(tmp_path_factory.mktemp("ca"), [HOST])


@pytest_asyncio.fixture
async def server(authority: tuple[ssl.SSLContext, ssl.SSLContext]) -> AsyncIterator[Server]:
    made = Server()
    async with await asyncio.start_server(made.handle, "127.0.0.1", 0, ssl=authority[0]) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


@pytest_asyncio.fixture
async def ring(server: Server, authority: tuple[ssl.SSLContext, ssl.SSLContext]) -> AsyncIterator[Fetched]:
    made = Fetched(connect={HOST: ("127.0.0.1", server.port)}, verify=authority[1])
    yield made
    await made.close()


def padded(size: int) -> bytes:
    """A key set of so many bytes, as good as any other."""
    return JWKS + b" " * (size - len(JWKS))


async def test_a_key_set_of_the_largest_size(server: Server, ring: Fetched) -> None:
    server.answer = answer(padded(MAX_BYTES))
    fits = Where(f"https://{HOST}/fits")
    await ring.fetch(fits)
    assert ring.get(fits) == padded(MAX_BYTES)
    server.answer = answer(padded(MAX_BYTES + 1))
    larger = Where(f"https://{HOST}/larger")
    with pytest.raises(Unauthentic) as caught:
        await ring.fetch(larger)
    assert caught.value.reason == "key_unknown"
    with pytest.raises(KeyNeeded):
        ring.get(larger)
    with pytest.raises(Unavailable):  # where it is not the sender who chose the address
        await ring.fetch(Where(f"https://{HOST}/own", fixed=True))


async def test_failures_are_remembered_within_bounds() -> None:
    """No two of one provider, so that no budget keeps them out; and not over TLS, so that none is asked."""
    ring, wheres = Fetched(), [Where(f"http://example{n}.invalid/") for n in range(300)]
    for number, where in enumerate(wheres):
        with pytest.raises(Unauthentic):
            await ring.fetch(where, provider=f"p{number}", who=f"192.0.2.{number % 100}")
        assert len(ring._failures) <= MAX_ENTRIES
    assert list(ring._failures) == wheres[-MAX_ENTRIES:], "the oldest went"
    assert len(ring._budget._clients) <= MAX_CLIENTS


async def asked_by_many(ring: Fetched) -> int:
    """How many of those who ask, each from an address of their own, are told that it is too much."""
    refused = 0
    for n in range(int(BUDGET * FOR_STRANGERS) + 400):
        try:
            await ring.fetch(Where(f"http://sns.example.invalid/{n}"), who=f"192.0.2.{n}")
        except Unavailable:
            refused += 1
        except Unauthentic:
            pass
    return refused


async def test_many_who_ask_do_not_renew_the_budget() -> None:
    """Nor do they push out of memory what was spent on their provider."""
    assert await asked_by_many(Fetched(clock=lambda: 1000.0)) == 400


async def test_those_who_are_refused_are_remembered_within_bounds() -> None:
    ring = Fetched(clock=lambda: 1000.0)
    await asked_by_many(ring)
    assert len(ring._budget._clients) <= MAX_CLIENTS
