"""Batches of counts: each counts once, whatever happens to its write."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from hookledger.errors import Unavailable
from hookledger.observe.metrics.counts import Histogram
from hookledger.observe.metrics.rollup import RateWriter, Totals, Written, bucket_totals


class Store:
    """Keeps batches as the database does. `fails`: before the commit, or after it."""

    def __init__(self) -> None:
        self.kept: Counter[tuple[str, str]] = Counter()
        self.numbers: list[int] = []
        self.fails = ""

    async def add(self, process: str, number: int, counts: Mapping[tuple[str, str], int]) -> bool:
        if self.fails == "before":
            raise Unavailable("down")
        is_new = number not in self.numbers
        if is_new:
            self.numbers.append(number)
            self.kept.update(counts)
        if self.fails == "after":
            raise Unavailable("the answer was lost")
        return is_new


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_batch_whose_commit_is_unknown_counts_once(fails: str) -> None:
    store, totals = Store(), Totals()
    writer = RateWriter(store, "p", lambda: dict(totals))
    totals["stripe", "delivery.accepted"] = 3
    store.fails = fails
    await writer.write()
    totals["stripe", "delivery.accepted"] = 10
    await writer.write()
    store.fails = ""
    await writer.write()
    assert store.kept == {("stripe", "delivery.accepted"): 10}
    await writer.write()
    assert store.kept == {("stripe", "delivery.accepted"): 10}
    assert store.numbers == [1, 2], "nothing new makes no batch"


async def test_what_was_counted_last_is_written_at_the_end() -> None:
    store, totals = Store(), Totals()
    async with Written(RateWriter(store, "p", lambda: dict(totals), every=3600.0)):
        await asyncio.sleep(0)
        totals["", "rejected"] = 1
    assert store.kept == {("", "rejected"): 1}


async def test_an_internal_error_ends_neither_the_writer_nor_the_process() -> None:
    store, calls = Store(), 0

    def totals() -> Totals:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("a defect")
        return {("stripe", "stale"): calls}

    writer = RateWriter(store, "p", totals)
    await writer.write()
    await writer.write()
    assert store.kept == {("stripe", "stale"): 2}


async def test_what_another_writer_of_this_process_wrote_is_not_written_again() -> None:
    store, totals = Store(), Totals({("stripe", "delivery.accepted"): 5})
    writer = RateWriter(store, "second", lambda: dict(totals))
    totals["stripe", "delivery.accepted"] = 7
    await writer.write()
    assert store.kept == {("stripe", "delivery.accepted"): 2}


def test_buckets_are_named_by_their_upper_bound() -> None:
    found = Histogram((0.05, 1.0))
    for value in (0.01, 0.5, 7.0):
        found.observe(value)
    assert list(bucket_totals("ack", found)) == [("ack.0.05", 1), ("ack.1", 1), ("ack.inf", 1)]
