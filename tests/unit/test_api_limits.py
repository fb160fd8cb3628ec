"""What the API's callers share: places are taken when the body is here, and no client address takes all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hookledger import Inbox
from hookledger.config import decode
from hookledger.operate.api import app
from hookledger.operate.api.app import Api
from hookledger.operate.api.auth import Role, Tokens, token
from hookledger.operate.api.call import Asked, Call, Nothing
from hookledger.operate.api.errors import Busy
from hookledger.operate.api.shares import Shares
from hookledger.receive.request import Message
from tests.operators import SETTINGS, TOKENS

BEARER = (b"authorization", f"Bearer {TOKENS['viewer']}".encode())


class Empty(msgspec.Struct):
    pass


class World:
    """An API whose calls wait until they are told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = 0

        async def wait(asked: Asked[Nothing, Empty]) -> Empty:
            """Waits."""
            del asked
            self.began += 1
            await self.go.wait()
            return Empty()

        async def context() -> Any:
            return None

        calls = [Call("POST", "/wait", Role.VIEWER, wait)]
        self.api = Api(Tokens([token("viewer", Role.VIEWER, TOKENS["viewer"])]), context, calls)

    def ask(self, client: str = "192.0.2.1", *, half: bool = False) -> asyncio.Task[int]:
        return asyncio.create_task(self._ask(client, half))

    async def _ask(self, client: str, half: bool) -> int:
        statuses: list[int] = []
        parts = [b"{", b"}"]

        async def receive() -> Message:
            if half and len(parts) == 1:
                await self.go.wait()
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: Message) -> None:
            statuses.append(message.get("status", 0))

        headers = [BEARER, (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/api/v1/wait", "query_string": b"", "headers": headers}
        await self.api({**scope, "client": (client, 1), "asgi": {"spec_version": "2.4"}}, receive, send)
        return statuses[0]

    async def settled(self, began: int) -> None:
        """So many calls have begun, and everything else has its answer or waits."""
        async with asyncio.timeout(30):
            while self.began < began:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> World:
    return World()


async def test_half_sent_bodies_take_no_places(world: World) -> None:
    slow = [world.ask(client=f"192.0.2.{n % 4}", half=True) for n in range(200)]
    await world.settled(0)
    assert world.api._places.taken == 0 and world.api._bodies.taken == 200
    running = [world.ask() for _ in range(4)]
    await world.settled(4)
    world.go.set()
    assert await asyncio.gather(*running) == [200] * 4
    statuses = await asyncio.gather(*slow)
    assert set(statuses) <= {200, 503}
    assert (world.api._places.taken, world.api._bodies.taken) == (0, 0)


async def test_one_address_leaves_places_to_others(world: World) -> None:
    greedy = [world.ask() for _ in range(app.MAX_REQUESTS + 5)]
    await world.settled(app.MAX_REQUESTS_EACH)
    others = [world.ask(client="192.0.2.2") for _ in range(4)]
    await world.settled(app.MAX_REQUESTS_EACH + 4)
    world.go.set()
    assert await asyncio.gather(*others) == [200] * 4
    statuses = await asyncio.gather(*greedy)
    assert (statuses.count(200), statuses.count(503)) == (
        app.MAX_REQUESTS_EACH,
        app.MAX_REQUESTS + 5 - app.MAX_REQUESTS_EACH,
    )
    assert await world.ask() == 200


async def test_many_addresses_are_within_the_total(world: World) -> None:
    tasks = [world.ask(client=f"192.0.2.{n}") for n in range(app.MAX_REQUESTS + 3)]
    await world.settled(app.MAX_REQUESTS)
    world.go.set()
    statuses = await asyncio.gather(*tasks)
    assert (statuses.count(200), statuses.count(503)) == (app.MAX_REQUESTS, 3)


def test_shares() -> None:
    shares = Shares(10, 6)
    shares.take("a", 6)
    shares.take("b", 4)
    for client, amount in (("a", 1), ("c", 1), ("b", 3)):
        with pytest.raises(Busy):
            shares.take(client, amount)
    assert shares.taken == 10
    shares.release("a", 2)
    shares.take("c", 2)
    shares.release("a", 4)
    shares.release("b", 4)
    shares.release("c", 2)
    assert (shares.taken, len(shares._taken)) == (0, 0)


async def test_the_client_behind_a_proxy_is_who_is_limited() -> None:
    proxies = {"trusted_proxies": ["10.0.0.0/8"], "forwarded_header": "x-forwarded-for"}
    operator = Inbox("sqlite:///x.db", settings=decode({**SETTINGS, "intake": proxies})).operator
    scope = {"client": ("10.0.0.1", 1), "headers": [(b"x-forwarded-for", b"1.1.1.1, 2001:db8::1:2")]}
    assert operator._client(scope) == ("2001:db8::/64", 0)
    assert operator._client({**scope, "client": ("192.0.2.1", 1)}) == ("192.0.2.1", 0)
    assert operator._client({"headers": []}) == ("", 0)
