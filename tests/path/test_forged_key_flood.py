"""Forged requests that name certificates PayPal never had do not keep the real one from being fetched, and what was
fetched and proved a request outlives a restart."""

from __future__ import annotations

import asyncio
import base64
import time
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from hookledger import Inbox
from hookledger.receive.keyring import Fetched
from tests.asgi_client import Site
from tests.builders import Raw
from tests.path.conftest import MakeSite
from tests.path.served import Served, serving
from tests.path.test_published_keys import certificate, key
from tests.unit.https_server import Server, answer, contexts

HOST = "api.paypal.com"
CERTS = f"https://{HOST}/v1/notifications/certs"
WEBHOOK_ID = "1JE4291016473214C"
PAYPAL, ATTACKER = "203.0.113.7", "203.0.113.66"
PROXIED = {"intake": {"trusted_proxies": ["127.0.0.1"], "forwarded_header": "x-forwarded-for"}}
FLOOD = 41
"""Forged requests a minute."""


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """PayPal's host, and what fetches from there."""

    def __init__(self, folder: Path) -> None:
        self.serving, self.believing = contexts(folder, [HOST])
        self.server = Server()
        self.server.answer = self._answer
        self.real = certificate("messageverificationcerts.paypal.com")
        self.clock = Time()
        self.port = 0

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        is_real = b"/CERT-real " in self.server.asked[-1]
        await (answer(self.real) if is_real else answer(b"", "404 Not Found"))(writer)

    def keyring(self) -> Fetched:
        return Fetched(connect={HOST: ("127.0.0.1", self.port)}, verify=self.believing, clock=self.clock)

    def asked_for_the_real_one(self) -> int:
        return sum(b"/CERT-real " in asked for asked in self.server.asked)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    async with await asyncio.start_server(made.server.handle, "127.0.0.1", 0, ssl=made.serving) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


def prepared(site: Site, world: World) -> Site:
    site.inbox.keyring = world.keyring()
    site.inbox.source("paypal", provider="paypal", secrets=[WEBHOOK_ID])
    return site


def restarted(site: Site, world: World) -> Site:
    return prepared(Site(Inbox(site.inbox.database, settings=site.inbox.settings, clock=site.inbox.clock)), world)


async def post(served: Served, ident: str, cert: str, client: str, *, forged: bool = False) -> int:
    body = b'{"id": "%b", "event_type": "PAYMENT.SALE.COMPLETED"}' % ident.encode()
    moment = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = f"{ident}|{moment}|{WEBHOOK_ID}|{zlib.crc32(body)}".encode()
    made = bytes(256) if forged else key().sign(message, padding.PKCS1v15(), hashes.SHA256())
    headers = [
        ("PayPal-Transmission-Id", ident),
        ("PayPal-Transmission-Time", moment),
        ("PayPal-Transmission-Sig", base64.b64encode(made).decode()),
        ("PayPal-Cert-Url", f"{CERTS}/{cert}"),
        ("PayPal-Auth-Algo", "SHA256withRSA"),
        ("X-Forwarded-For", client),
    ]
    return (await served.ask("POST", "/paypal", body, headers)).status


async def flood(served: Served, world: World, minute: int, client: str) -> set[int]:
    """A new minute, in which all of them come before anybody else."""
    world.clock.now = 1000.0 + 60 * minute
    names = [f"forged-{minute}-{n}" for n in range(FLOOD)]
    found = {await post(served, name, f"CERT-{name}", client, forged=True) for name in names}
    world.clock.now += 30
    return found


async def test_the_first_real_certificate_is_fetched_during_a_flood(
    site_on: MakeSite, database_url: str, world: World
) -> None:
    site = prepared(await site_on(database_url, PROXIED), world)
    async with serving(site) as served:
        for minute in range(4):
            assert await flood(served, world, minute, f"9.9.9.9, {ATTACKER}") == {401, 503}
        assert await post(served, "real-1", "CERT-real", f"9.9.9.9, {PAYPAL}") == 202
        assert await flood(served, world, 5, ATTACKER) == {401, 503}
        assert await post(served, "real-2", "CERT-real", PAYPAL) == 202
    await site.inbox.asgi.stop()
    assert world.asked_for_the_real_one() == 1

    again = restarted(site, world)
    async with serving(again) as served:
        assert await flood(served, world, 6, ATTACKER) == {401, 503}
        assert await post(served, "real-3", "CERT-real", ATTACKER) == 202
    await again.inbox.asgi.stop()
    assert world.asked_for_the_real_one() == 1
    assert {event.key for event in await again.events()} == {"real-1", "real-2", "real-3"}


async def test_a_hidden_client_gets_a_turn(site_on: MakeSite, sqlite_url: str, world: World) -> None:
    """Behind a proxy that is not configured, the flood comes from the provider's address."""
    site = prepared(await site_on(sqlite_url), world)
    async with serving(site) as served:
        for minute in range(40):
            await flood(served, world, minute, ATTACKER)
            if await post(served, "real-1", "CERT-real", PAYPAL) == 202:
                break
    await site.inbox.asgi.stop()
    assert [event.key for event in await site.events()] == ["real-1"]


@pytest.mark.parametrize(("damage", "asked"), [("none", 1), ("no certificate", 2), ("a day old", 2)])
async def test_what_is_kept_is_looked_at_before_it_is_believed(
    site_on: MakeSite, database_url: str, world: World, damage: str, asked: int
) -> None:
    site = prepared(await site_on(database_url), world)
    async with serving(site) as served:
        assert await post(served, "real-1", "CERT-real", PAYPAL) == 202
    await site.inbox.asgi.stop()
    async with site.inbox.opened() as store:
        [key] = await store.published.kept()
        if damage != "none":
            await Raw(store).run("DELETE FROM published_keys")
            changed = {"content": b"no certificate"} if damage == "no certificate" else {"age": key.age + 86400}
            await store.published.keep(msgspec.structs.replace(key, **changed), most=1)
    site = restarted(site, world)
    async with serving(site) as served:
        assert await post(served, "real-2", "CERT-real", PAYPAL) == 202
    await site.inbox.asgi.stop()
    assert world.asked_for_the_real_one() == asked
    async with site.inbox.opened() as store:
        assert [key.content for key in await store.published.kept()] == [world.real]


async def test_without_the_table_keys_are_fetched(site_on: MakeSite, database_url: str, world: World) -> None:
    site = prepared(await site_on(database_url), world)
    async with site.inbox.opened() as store:
        await Raw(store).run("DROP TABLE published_keys")
    async with serving(site) as served:
        assert await post(served, "real-1", "CERT-real", PAYPAL) == 202
        assert await post(served, "real-2", "CERT-real", PAYPAL) == 202
    await site.inbox.asgi.stop()
    assert world.asked_for_the_real_one() == 1


async def test_only_what_proved_a_request_is_kept(site_on: MakeSite, database_url: str, world: World) -> None:
    site = prepared(await site_on(database_url), world)
    async with serving(site) as served:
        assert await post(served, "forged", "CERT-real", ATTACKER, forged=True) == 401
    await site.inbox.asgi.stop()
    async with site.inbox.opened() as store:
        assert await store.published.kept() == []
    site = restarted(site, world)
    async with serving(site) as served:
        assert await post(served, "real-1", "CERT-real", PAYPAL) == 202
    await site.inbox.asgi.stop()
    async with site.inbox.opened() as store:
        [key] = await store.published.kept()
    assert (key.provider, key.url, key.content) == ("paypal", f"{CERTS}/CERT-real", world.real)
