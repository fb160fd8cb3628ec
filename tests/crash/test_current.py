"""Handlers that fetch, while their workers are killed: the projection ends as the provider's objects are."""

import asyncio
import random
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from hookledger import Inbox
from tests.asgi_client import Site
from tests.crash.current_app import SECRET, TABLE
from tests.crash.processes import Installation, eventually
from tests.services import objects as service
from tests.services.objects import Objects, Reply

ENTITIES = 12
BURSTS = 2
"""Of each entity, per round."""
BURST = 4
"""Changes of one entity at a time, whose handlers overlap: without the guard, some entities end wrong."""


@pytest.fixture
def api() -> Iterator[Objects]:
    """Slow at random, so that an answer may be old when it arrives; at times too busy, or broken."""
    chance = random.Random(7)

    def trouble() -> Reply | str | None:
        happens = chance.random()
        if happens < 0.02:
            return Reply(429, {}, {"Retry-After": "1"})
        return Reply(500, {}) if happens < 0.06 else None

    with service.running() as running:
        running.delay = lambda: chance.choice([0.0, 0.05, 0.1, 0.3])
        running.when_idle = trouble
        yield running


class Provider:
    """Changes its objects, and then tells about each change; the last time twice."""

    def __init__(self, url: str, api: Objects, rounds: int) -> None:
        self._url = url
        self._api = api
        self._versions = dict.fromkeys([f"cus_{n}" for n in range(ENTITIES)], 0)
        self._bursts = [name for name in self._versions for _ in range(BURSTS * rounds)]
        random.Random(11).shuffle(self._bursts)
        self.error: BaseException | None = None

    @property
    def versions(self) -> dict[str, int]:
        return self._versions

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:
            self.error = error

    async def _send(self) -> None:
        inbox = Inbox(self._url)
        inbox.source("stripe", provider="stripe", secrets=[SECRET])
        site = Site(inbox)
        for name in self._bursts:
            for _ in range(BURST):
                self._versions[name] += 1
                self._api.objects[f"/v1/customers/{name}"] = {"id": name, "version": self._versions[name]}
                await self._tell(site, name, self._versions[name])
                await asyncio.sleep(0.06)  # a handler has the old state by now, or will
        for name, version in self._versions.items():
            await self._tell(site, name, version)
        await inbox.asgi.stop()

    async def _tell(self, site: Site, name: str, version: int) -> None:
        content: dict[str, Any] = {
            "id": f"evt_{name}_{version}",
            "type": "customer.updated",
            "created": 1_790_000_000,
        }
        content["data"] = {"object": {"id": name, "object": "customer"}}
        while (await site.deliver(content)).status not in (200, 202):
            await asyncio.sleep(0.05)


# proves R37
def test_no_change_is_lost_by_killed_workers_and_a_slow_provider(
    installation: Installation, api: Objects, rounds: int
) -> None:
    database = installation.database
    installation.use("tests.crash.current_app:inbox", CURRENT_URL=api.url, CURRENT_TOKEN="made up")
    database.rows(TABLE)
    for number in range(ENTITIES):
        database.rows(f"INSERT INTO projection VALUES ('cus_{number}', 0, 0)")
    provider = Provider(database.url, api, rounds)
    telling = Thread(target=provider.run)
    workers = [installation.work(), installation.work()]
    telling.start()
    at_random = api.delay
    for number in range(2 * rounds):
        asked = len(api.asked)
        eventually(lambda asked=asked: len(api.asked) > asked + 12, "handlers fetch")  # type: ignore[misc]
        api.delay = lambda: 1.0  # so that the kill finds handlers that wait
        eventually(lambda asked=asked: len(api.asked) > asked + 20, "handlers fetch")  # type: ignore[misc]
        workers[number % 2].kill()
        api.delay = at_random
        workers[number % 2] = installation.work()
    telling.join()
    assert provider.error is None
    installation.drain()
    written = {row["entity"]: row["version"] for row in database.rows("SELECT entity, version FROM projection")}
    assert written == provider.versions
    assert database.states() == {"processed": sum(provider.versions.values())}
    assert database.outcomes()["crashed"] > 0, "no kill hit a handler"
