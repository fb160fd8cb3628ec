"""Published keys are fetched from pinned hosts over real TLS, seldom, and within limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from hookledger.errors import Unauthentic, Unavailable
from hookledger.providers.schemes.base import KeyNeeded, Where
from hookledger.receive import keyring
from hookledger.receive.key_budget import BUDGET, BUDGET_EACH, FOR_STRANGERS
from hookledger.receive.keyring import Fetched

from .https_server import JWKS, Answer, Server, answer, contexts

HOST = "www.googleapis.com"
HOSTS = (HOST, "production.plaid.com", *(f"sns.us-east-{n}.amazonaws.com" for n in range(1, 10)))
"""Whom the server is, as its certificate says."""
KEYS = Where(f"https://{HOST}/oauth2/v3/certs")
STRANGERS = int(BUDGET * FOR_STRANGERS)
PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts(tmp_path_factory.mktemp("ca"), HOSTS)


@pytest_asyncio.fixture
async def server(authority: tuple[ssl.SSLContext, ssl.SSLContext]) -> AsyncIterator[Server]:
    made = Server()
    async with await asyncio.start_server(made.handle, "127.0.0.1", 0, ssl=authority[0]) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


def here(port: int) -> dict[str, tuple[str, int]]:
    """Every host is the server."""
    return dict.fromkeys((*HOSTS, "api.paypal.com"), ("127.0.0.1", port))


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest_asyncio.fixture
async def ring(
    server: Server, authority: tuple[ssl.SSLContext, ssl.SSLContext], clock: Time
) -> AsyncIterator[Fetched]:
    made = Fetched(connect=here(server.port), verify=authority[1], clock=clock)
    yield made
    await made.close()


def kept(ring: Fetched, where: Where = KEYS) -> bool:
    try:
        ring.get(where)
    except KeyNeeded as needed:
        assert needed.where == where
        return False
    return True


async def unknown(ring: Fetched, where: Where = KEYS, **options: Any) -> None:
    with pytest.raises(Unauthentic) as caught:
        await ring.fetch(where, **options)
    assert caught.value.reason == "key_unknown"


async def test_fetch(server: Server, ring: Fetched) -> None:
    assert not kept(ring)
    await ring.fetch(KEYS)
    assert ring.get(KEYS) == JWKS
    [asked] = server.asked
    assert asked.startswith(b"GET /oauth2/v3/certs HTTP/1.1\r\n")
    assert b"\r\nhost: www.googleapis.com\r\n" in asked.lower() and b"accept-encoding: identity" in asked.lower()
    await ring.fetch(KEYS)
    assert len(server.asked) == 1


async def test_post(server: Server, ring: Fetched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    where = Where("https://production.plaid.com/webhook_verification_key/get", b'{"secret": "s3cret"}')
    server.answer = answer(b'{"error": "INVALID"}', "400 Bad Request")
    await unknown(ring, where)
    [asked] = server.asked
    assert asked.startswith(b"POST /webhook_verification_key/get ") and asked.endswith(
        b'\r\n\r\n{"secret": "s3cret"}'
    )
    assert b"content-type: application/json" in asked.lower()
    assert "s3cret" not in caplog.text
    assert not kept(ring, Where(where.url))  # another question altogether


async def test_pinning(server: Server, authority: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ring = Fetched(connect=here(server.port), verify=authority[1])
    with pytest.raises(Unavailable):
        await ring.fetch(Where("https://api.paypal.com/v1/notifications/certs/x"))
    stranger = Fetched(connect=here(server.port))  # does not know this CA
    with pytest.raises(Unavailable):
        await stranger.fetch(KEYS)
    assert not server.asked
    for url in (
        "http://www.googleapis.com/x",
        "https://u@www.googleapis.com/x",
        "https://www.googleapis.com:80/x",
        "https:///x",
        "file:///etc/passwd",
    ):
        await unknown(ring, Where(url))
    assert not server.asked


async def test_redirects(server: Server, ring: Fetched) -> None:
    server.answer = answer(JWKS, "302 Found", f"Location: https://{HOST}/other")
    await unknown(ring)
    assert len(server.asked) == 1 and not kept(ring)


@pytest.mark.parametrize("announced", [True, False])
async def test_oversize(server: Server, ring: Fetched, announced: bool) -> None:
    written = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        length = b"Content-Length: 1000000000\r\n" if announced else b""
        writer.write(b"HTTP/1.1 200 OK\r\n%bConnection: close\r\n\r\n" % length)
        while written < 100_000_000:
            writer.write(b" " * 65536)
            await writer.drain()
            written += 65536

    server.answer = endless
    await unknown(ring)
    assert written < 20_000_000  # what the sockets' buffers took
    server.answer = answer(JWKS + b" " * (keyring.MAX_BYTES - len(JWKS)))
    other = Where(f"https://{HOST}/just-fits")
    await ring.fetch(other)
    assert kept(ring, other)


@pytest.mark.parametrize("when", ["before", "within"])
async def test_slow(server: Server, authority: tuple[ssl.SSLContext, ssl.SSLContext], when: str) -> None:
    ended = False

    async def trickle(writer: asyncio.StreamWriter) -> None:
        if when == "within":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        nonlocal ended
        for _ in range(1000):
            if when == "within":
                writer.write(b" ")
                await writer.drain()
            await asyncio.sleep(0.05)
        ended = True

    server.answer = trickle
    ring = Fetched(connect=here(server.port), verify=authority[1], timeout=0.4)
    with pytest.raises(Unavailable, match="within"):
        await ring.fetch(KEYS)
    assert not ended


@pytest.mark.parametrize("status", ["500 Oh", "503 Busy", "429 Slow down", "408 Slow"])
async def test_out_of_reach(server: Server, ring: Fetched, clock: Time, status: str) -> None:
    server.answer = answer(b"", status)
    for _ in range(5):
        with pytest.raises(Unavailable):
            await ring.fetch(KEYS)
    assert len(server.asked) == 1
    clock.now += keyring.FAILURE
    server.answer = answer(JWKS)
    await ring.fetch(KEYS)
    assert len(server.asked) == 2 and kept(ring)


@pytest.mark.parametrize(
    "given",
    [
        answer(b"", "404 Not Found"),
        answer(b"", "403 No"),
        answer(JWKS, "204 No Content"),
        answer(b""),
        answer(b"<html>"),
        answer(b"[1]"),
        answer(b"[" * 60000),
        answer(b"-----BEGIN PRIVATE KEY-----\n"),
        answer(b"\x1f\x8b\x08\x00", "200 OK", "Content-Encoding: gzip"),
    ],
)
async def test_negative_cache(server: Server, ring: Fetched, clock: Time, given: Answer) -> None:
    server.answer = given
    for _ in range(5):
        await unknown(ring)
        clock.now += 5
    assert len(server.asked) == 1 and not kept(ring)
    clock.now += keyring.FAILURE
    await unknown(ring)
    assert len(server.asked) == 2


async def test_dead_host(ring: Fetched, server: Server, authority: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def garbage(writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")

    server.answer = garbage
    with pytest.raises(Unavailable):
        await ring.fetch(KEYS)
    nobody = Fetched(connect={HOST: ("127.0.0.1", 1)}, verify=authority[1])
    with pytest.raises(Unavailable):
        await nobody.fetch(KEYS)


async def test_single_flight(server: Server, ring: Fetched) -> None:
    gate = asyncio.Event()

    async def later(writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer(JWKS)(writer)

    server.answer = later
    waiting = [asyncio.create_task(ring.fetch(KEYS, again=n % 2 == 0)) for n in range(50)]
    while not server.asked:
        await asyncio.sleep(0.01)
    waiting[0].cancel()  # who asked first leaves; the others get what was asked for
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError) and results[1:] == [None] * 49
    assert len(server.asked) == 1 and kept(ring)


async def test_close(server: Server, ring: Fetched) -> None:
    async def never(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    server.answer = never
    waiting = asyncio.create_task(ring.fetch(KEYS))
    while not server.asked:
        await asyncio.sleep(0.01)
    await ring.close()
    with pytest.raises(Unavailable):
        await waiting


async def test_again(server: Server, ring: Fetched, clock: Time) -> None:
    await ring.fetch(KEYS)
    for _ in range(11):
        await ring.fetch(KEYS, again=True)
        clock.now += 5
    assert len(server.asked) == 1
    clock.now += 5
    server.answer = answer(b'{"keys": [1]}')
    await ring.fetch(KEYS, again=True)
    await ring.fetch(KEYS, again=True)
    assert len(server.asked) == 2 and ring.get(KEYS) == b'{"keys": [1]}'
    clock.now += 60
    server.answer = answer(b"", "500 Oh")
    for _ in range(3):  # whether there are newer keys is not known now
        with pytest.raises(Unavailable):
            await ring.fetch(KEYS, again=True)
    assert len(server.asked) == 3 and kept(ring)  # those who need no newer one go on


@pytest.mark.parametrize(
    ("content", "caching", "lifetime"),
    [
        (JWKS, "public, max-age=20000, must-revalidate", 20000),
        (JWKS, "max-age=1", 300),
        (JWKS, "max-age=999999999", 86400),
        (JWKS, "s-maxage=20000", 300),
        (JWKS, "max-age=-1", 300),
        (JWKS, "no-store", 300),
        (PEM, "max-age=1", 86400),
    ],
)
async def test_lifetimes(
    server: Server, ring: Fetched, clock: Time, content: bytes, caching: str, lifetime: int
) -> None:
    server.answer = answer(content, "200 OK", f"Cache-Control: {caching}")
    await ring.fetch(KEYS)
    clock.now += lifetime - 1
    assert kept(ring)
    clock.now += 1
    assert not kept(ring)
    await ring.fetch(KEYS)
    assert kept(ring) and len(server.asked) == 2


async def test_stale(server: Server, ring: Fetched, clock: Time) -> None:
    await ring.fetch(KEYS)
    server.answer = answer(b"", "502 Oh")
    clock.now += 300
    for hours in range(24):
        assert not kept(ring)
        await ring.fetch(KEYS)  # tried, in vain
        assert kept(ring)
        assert len(server.asked) == hours + 2
        clock.now += 3600
    with pytest.raises(Unavailable):
        await ring.fetch(KEYS)
    assert not kept(ring)


async def test_withdrawn(server: Server, ring: Fetched, clock: Time) -> None:
    await ring.fetch(KEYS)
    server.answer = answer(b"", "404 Not Found")
    clock.now += 300
    await unknown(ring)
    assert not kept(ring)


async def test_bounds(server: Server, ring: Fetched, clock: Time) -> None:
    server.answer = answer(PEM)
    wheres = [Where(f"https://{HOST}/{n}") for n in range(300)]
    for where in wheres:
        if where is not wheres[0]:
            ring.get(wheres[0])  # in use, so not the one to go
        await ring.fetch(where)
        clock.now += 3
    clock.now -= 3
    found = [where for where in wheres if where in ring._entries]
    assert len(found) == keyring.MAX_ENTRIES and found[0] == wheres[0] and found[-1] == wheres[-1]


async def test_budget(server: Server, ring: Fetched, clock: Time) -> None:
    await ring.fetch(KEYS, provider="google")
    server.answer = answer(b"", "404 Not Found")
    refused = 0
    for n in range(200):
        where = Where(f"https://sns.us-east-{n % 9 + 1}.amazonaws.com/SimpleNotificationService-{n:032x}.pem")
        try:
            await ring.fetch(where, who=f"192.0.2.{n % 10}")
        except Unavailable:
            refused += 1
        except Unauthentic:
            pass
    assert refused == 200 - STRANGERS and len(server.asked) == STRANGERS + 1
    server.answer = answer(JWKS)
    await ring.fetch(Where(f"https://{HOST}/another"), provider="google")  # another provider is not affected
    clock.now += 301
    await ring.fetch(KEYS)  # nor what is known
    await ring.fetch(Where("https://sns.us-east-1.amazonaws.com/new"))
    assert len(ring._failures) <= keyring.MAX_ENTRIES


async def test_a_budget_for_each_who_asks(server: Server, ring: Fetched) -> None:
    server.answer = answer(b"", "404 Not Found")
    refused = 0
    for n in range(int(BUDGET_EACH * FOR_STRANGERS) + 5):
        where = Where(f"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-{n:032x}.pem")
        try:
            await ring.fetch(where, who="192.0.2.66")
        except Unavailable:
            refused += 1
        except Unauthentic:
            pass
    assert refused == 5
    server.answer = answer(PEM)
    await ring.fetch(Where("https://sns.us-east-1.amazonaws.com/new"), who="192.0.2.1")


async def test_a_broken_key_set_is_not_the_senders_fault(server: Server, ring: Fetched) -> None:
    own = Where(KEYS.url, fixed=True)
    for broken in (answer(b"<html>"), answer(b"", "403 Forbidden"), answer(b"", "302 Found", "Location: /x")):
        server.answer = broken
        ring._failures.clear()
        with pytest.raises(Unavailable):
            await ring.fetch(own)


@pytest.mark.parametrize("trusted", [False, True])
async def test_proxies(
    server: Server, authority: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    ring = Fetched(connect=here(server.port), verify=authority[1], trust_env=trusted)
    with pytest.raises(Unavailable) if trusted else contextlib.nullcontext():
        await ring.fetch(KEYS)
    assert kept(ring) is not trusted


async def test_visit(server: Server, ring: Fetched) -> None:
    url = f"https://{HOST}/?Action=ConfirmSubscription&Token=t"
    server.answer = answer(b"<ok/>")
    await ring.visit(url)
    assert server.asked[0].startswith(b"GET /?Action=ConfirmSubscription&Token=t HTTP/1.1")
    for status in ("302 Found", "403 No", "500 Oh"):
        server.answer = answer(b"", status)
        with pytest.raises(Unavailable):
            await ring.visit(url)
    for wrong in ("http://www.googleapis.com/", "https://api.paypal.com/"):
        with pytest.raises(Unavailable):
            await ring.visit(wrong)
