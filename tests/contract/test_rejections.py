"""Refused requests: all are counted, some are kept, and strangers cannot fill the disk with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData
from hookledger.ids import new_id
from hookledger.store.ops.rejections import RejectedRequest
from hookledger.store.protocol import Store
from tests.builders import SOURCE, Raw, delivered, record
from tests.contract.conftest import OpenStore

WRONG = "signature_mismatch"


def refused(source: str = SOURCE, reason: str = WRONG, body: bytes = b"{}", **other: Any) -> RejectedRequest:
    values: dict[str, Any] = {
        "id": new_id(),
        "source": source,
        "reason": reason,
        "method": "POST",
        "path": f"/{source}",
        "query": b"",
        "headers": b"",
        "body": body,
        "remote": None,
    }
    return RejectedRequest(**values | other)


async def refuse(store: Store, *sample: RejectedRequest, most: int = 100, most_bytes: int = 100_000) -> None:
    counts: dict[tuple[str, str], int] = {}
    for refusal in sample:
        counts[refusal.source, refusal.reason] = counts.get((refusal.source, refusal.reason), 0) + 1
    await store.rejections.add(sample, counts, most=most, most_bytes=most_bytes)


async def kept(store: Store, **which: Any) -> list[bytes]:
    return [row.body for row in await store.rejections.sample(**which)]


async def test_kept_exactly(store: Store, clock: Clock) -> None:
    clock.offset = 86_400.0
    sent = refused(
        method="PUT", path="/é?", query=b"a=\0\xff", headers=b"x: \xe9", body=bytes(range(256)), remote="::1"
    )
    await refuse(store, sent)
    [row] = await store.rejections.sample()
    for name in RejectedRequest.__struct_fields__:
        assert getattr(row, name) == getattr(sent, name)
    assert abs((row.received_at - clock.now()).total_seconds()) < 60


async def test_the_newest_first_and_filtered(store: Store) -> None:
    sent = [
        refused(body=b"0"),
        refused(body=b"1", reason="stale_timestamp"),
        refused(body=b"2", source="github"),
        refused(body=b"3", source=""),
    ]
    await refuse(store, *sent[2:])
    await refuse(store, *sent[:2])
    assert await kept(store) == [b"3", b"2", b"1", b"0"]
    assert await kept(store, source=SOURCE) == [b"1", b"0"]
    assert await kept(store, source="") == [b"3"]
    assert await kept(store, reason=WRONG) == [b"3", b"2", b"0"]
    assert await kept(store, source=SOURCE, reason=WRONG) == [b"0"]
    assert await kept(store, before=sent[2].id) == [b"1", b"0"]
    assert await kept(store, limit=1) == [b"3"]
    assert await kept(store, limit=-1) == []


async def test_counts_are_of_all(store: Store, clock: Clock) -> None:
    begun = clock.now()
    await store.rejections.add(
        [refused()], {(SOURCE, WRONG): 1000, ("", "unknown_source"): 1}, most=5, most_bytes=500
    )
    clock.offset += 100
    await store.rejections.add([], {(SOURCE, WRONG): 7, (SOURCE, "too_large"): 0}, most=5, most_bytes=500)
    clock.offset -= 200  # a clock that was set back
    await store.rejections.add([], {("", "unknown_source"): 1}, most=5, most_bytes=500)
    nobody, ours = await store.rejections.rejection_counts()
    assert (nobody.source, nobody.reason, nobody.count, nobody.kept) == ("", "unknown_source", 2, 0)
    assert nobody.first_at == nobody.last_at
    assert (ours.source, ours.reason, ours.count, ours.kept) == (SOURCE, WRONG, 1007, 1)
    assert -60 < (ours.first_at - begun).total_seconds() < 60
    assert (ours.last_at - ours.first_at).total_seconds() >= 100


async def test_nothing_refused_is_nothing_written(store: Store) -> None:
    await store.rejections.add([], {}, most=5, most_bytes=500)
    assert (await store.rejections.sample(), await store.rejections.rejection_counts()) == ([], [])


async def test_at_most_so_many_requests_of_each_source(store: Store) -> None:
    await refuse(store, refused("github", body=b"other"), most=3)
    for n in range(10):
        await refuse(store, refused(body=b"%d" % n), most=3)
    assert await kept(store) == [b"9", b"8", b"7", b"other"]
    await refuse(store, *(refused(body=b"%d" % n) for n in range(20, 30)), most=3)
    assert await kept(store, source=SOURCE) == [b"29", b"28", b"27"]
    await refuse(store, refused(body=b"last"), most=1)
    assert await kept(store) == [b"last", b"other"]
    await refuse(store, refused(body=b"none"), most=0)
    assert await kept(store) == [b"other"]


async def test_at_most_so_many_bytes_of_each_source(store: Store) -> None:
    parts: dict[str, Any] = {"query": b"q" * 10, "headers": b"h" * 10}
    for n in range(10):
        await refuse(store, refused(body=b"%d" % n * 10, **parts), most_bytes=100)
    await refuse(store, refused("github", body=b"g" * 100), most_bytes=100)
    assert await kept(store) == [b"g" * 100, b"9" * 10, b"8" * 10, b"7" * 10]
    # A large one drives out several, and one that is too large by itself none.
    await refuse(store, refused(body=b"x" * 60, **parts), most_bytes=110)
    assert await kept(store, source=SOURCE) == [b"x" * 60, b"9" * 10]
    await refuse(store, refused(body=b"y" * 111), refused(body=b"z"), most_bytes=110)
    assert await kept(store, source=SOURCE) == [b"z", b"x" * 60]
    assert [row.count for row in await store.rejections.rejection_counts()] == [1, 13]


async def test_the_budget_holds_under_concurrency(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    batches = [[refused(reason=f"reason_{(n + k) % 3}") for k in range(7)] for n in range(12)]
    await asyncio.gather(*(refuse(stores[n % 2], *batch, most=20) for n, batch in enumerate(batches)))
    assert await raw.count("rejections") == 20
    counts = await store.rejections.rejection_counts()
    assert (sum(row.count for row in counts), sum(row.kept for row in counts)) == (84, 20)


async def test_what_was_accepted_later(store: Store, raw: Raw) -> None:
    sent = [refused(body=b"%d" % n) for n in range(3)]
    await refuse(store, *sent)
    events = [new_id(), new_id()]
    assert await store.rejections.remove_recorded(sent[0].id, events, "ada", "the secret was wrong")
    assert await store.rejections.remove_recorded(sent[2].id, [], "ada", "the secret was wrong")
    assert not await store.rejections.remove_recorded(sent[0].id, events, "bob", "too late")
    assert not await store.rejections.remove_recorded(new_id(), events, "bob", "no such thing")
    assert await kept(store) == [b"1"]
    assert await raw.run("SELECT name, actor, subject FROM actions") == [("recheck", "ada", str(sent[0].id))] * 2
    [count] = await store.rejections.rejection_counts()
    assert (count.count, count.kept) == (3, 1)


async def test_whatever_a_stranger_sends_can_be_kept(store: Store) -> None:
    """One that could not would take the whole batch with it."""
    await refuse(
        store,
        refused(path="/a\0b", method="GET\0", remote="\ud800"),
        refused(path="/" + "é" * 5000, method="X" * 99, remote="y" * 999),
        refused(path="/\udcff\0" * 2000),
    )
    found = await store.rejections.sample()
    assert [len(row.path) for row in found] == [2048, 2048, 4]
    assert (found[2].path, found[2].method, found[2].remote) == ("/a\ufffdb", "GET\ufffd", "?")
    assert (found[1].method, found[1].remote) == ("X" * 32, "y" * 255)


BROKEN: list[tuple[Sequence[RejectedRequest], dict[tuple[str, str], int]]] = [
    ([refused(reason="")], {(SOURCE, WRONG): 1}),
    ([refused()], {(SOURCE, WRONG): 1, (SOURCE, ""): 1}),
    ([refused()], {("a", WRONG): 1, (SOURCE, WRONG): -1}),
    ([refused()], {("a", WRONG): 1, (SOURCE, WRONG): 2**63}),
]


@pytest.mark.parametrize(("sample", "counts"), BROKEN)
async def test_all_or_nothing(
    store: Store, sample: Sequence[RejectedRequest], counts: dict[tuple[str, str], int]
) -> None:
    await refuse(store, refused(body=b"before"), most=1)
    with pytest.raises(BadData):
        await store.rejections.add(sample, counts, most=1, most_bytes=500)
    assert await kept(store) == [b"before"]
    [count] = await store.rejections.rejection_counts()
    assert count.count == 1


async def test_the_same_sample_twice(store: Store) -> None:
    """Whose first commit was not heard of."""
    sent = refused()
    await refuse(store, sent)
    await refuse(store, sent)
    assert len(await store.rejections.sample()) == 1


async def test_intake_does_not_wait_for_rejections(store: Store, open_store: OpenStore) -> None:
    other = await open_store()

    async def flood() -> None:
        for _ in range(20):
            await refuse(other, *(refused(body=b"x" * 1000) for _ in range(50)), most=200)

    async def deliver() -> int:
        return sum([len(await record(store, delivered(f"evt_{n}"))) for n in range(50)])

    _, recorded = await asyncio.gather(flood(), deliver())
    assert recorded == 50
