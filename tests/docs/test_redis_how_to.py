"""The code of docs/how-to/redis.md runs, against a real Valkey."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis import Guard, Lease
from tests.asgi_client import ask
from tests.services.valkey import Valkey

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "redis.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
ACME = [("X-Account", "acme"), ("Idempotency-Key", "k-1")]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the page's code defines."""
    with Valkey() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        defined: dict[str, Any] = {"valkey": server}
        for block in BLOCKS:
            exec(compile(block, PAGE.name, "exec"), defined)
        yield defined


async def test_the_endpoint(names: dict[str, Any]) -> None:
    booked = []

    async def book(body: bytes, account: str) -> int:
        booked.append((body, account))
        return len(booked)

    names["book"] = book
    app = names["app"]
    first = await ask(app, "POST", "/orders", b"{}", ACME)
    assert (first.status, first.body, first.headers["content-type"]) == (201, b'{"order":1}', "application/json")
    assert await ask(app, "POST", "/orders", b"{}", ACME) == first
    assert (await ask(app, "POST", "/orders", b'{"more": 1}', ACME)).status == 422
    other = await ask(app, "POST", "/orders", b"{}", [("X-Account", "globex"), ACME[1]])
    assert other.body == b'{"order":2}'
    for key in ([], [("Idempotency-Key", "")]):
        assert (await ask(app, "POST", "/orders", b"{}", [ACME[0], *key])).status == 400
    assert booked == [(b"{}", "acme"), (b"{}", "globex")]
    names["valkey"].kill()
    assert (await ask(app, "POST", "/orders", b"{}", ACME)).status == 503
    assert len(booked) == 2


async def test_the_decisions(names: dict[str, Any]) -> None:
    async with Redis.from_url(names["valkey"].url) as client:
        guard = names["guard"] = Guard(client, away="closed")
        call: dict[str, Any] = {"caller": "acme", "source": "POST /orders", "fingerprint": b"{}", "repeat": "never"}
        for key in ("charged", "not charged"):
            lease = await guard.begin(**call, key=key)
            assert isinstance(lease, Lease)
            await guard.fail(lease, TimeoutError())
        await names["decide"]({"charged"})
        states = [
            (await guard.look(caller="acme", source="POST /orders", key=key)).state
            for key in ("charged", "not charged")
        ]
    assert states == ["done", "free"]


def test_plain_functions(names: dict[str, Any]) -> None:
    with names["blocking"]:
        assert names["ship"]("order-17") == b"parcel of order-17"
