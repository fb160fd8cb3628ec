"""Published keys that proved a request are kept: the newest of each provider, with their age."""

from __future__ import annotations

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData
from hookledger.store.ops.published import PublishedKey
from hookledger.store.protocol import Store
from tests.builders import Raw
from tests.contract.conftest import OpenStore

KEY = PublishedKey(b"\1" * 32, "paypal", "https://api.paypal.com/x", b"-----BEGIN", 86400.0, 0.0)


def changed(**fields: object) -> PublishedKey:
    return msgspec.structs.replace(KEY, **fields)


async def kept(store: Store) -> list[tuple[bytes, bytes]]:
    return sorted((key.digest, key.content) for key in await store.published.kept())


async def test_a_key_grows_old(store: Store, open_store: OpenStore, clock: Clock) -> None:
    await store.published.keep(changed(age=100.0), most=4)
    clock.offset += 1000
    [found] = await (await open_store()).published.kept()
    assert 1100 <= found.age < 1200
    assert msgspec.structs.replace(found, age=0.0) == KEY


async def test_the_newer_stays(store: Store) -> None:
    await store.published.keep(changed(age=10.0), most=4)
    await store.published.keep(changed(content=b"old", age=100.0), most=4)
    assert await kept(store) == [(KEY.digest, KEY.content)]
    await store.published.keep(changed(content=b"new"), most=4)
    assert await kept(store) == [(KEY.digest, b"new")]


async def test_rows_are_bounded_for_each_provider(store: Store) -> None:
    await store.published.keep(changed(digest=b"\xff" * 32, provider="aws_sns", age=9999.0), most=3)
    for n in range(10):
        await store.published.keep(changed(digest=bytes([n]) * 32, age=100.0 - n), most=3)
    assert [digest[0] for digest, _ in await kept(store)] == [7, 8, 9, 255]


@pytest.mark.parametrize(
    "wrong",
    [{"digest": b"short"}, {"content": b""}, {"content": b"x" * 65537}, {"url": "x" * 1025}, {"lifetime": -1.0}],
)
async def test_impossible_rows_are_refused(store: Store, raw: Raw, wrong: dict[str, object]) -> None:
    with pytest.raises(BadData):
        await store.published.keep(changed(**wrong), most=3)
    assert await raw.count("published_keys") == 0
