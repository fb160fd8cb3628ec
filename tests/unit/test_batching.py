"""Batches: their sizes, how many are in flight, and what one failed item means for the others."""

import asyncio
from collections.abc import Sequence

import pytest

from hookledger.batching import Batcher, Flush, retry_individually
from hookledger.errors import BadData, Unavailable


async def refuse_threes(items: Sequence[int]) -> Sequence[int]:
    if any(item % 3 == 0 for item in items):
        raise BadData
    return [item * 10 for item in items]


def noting() -> tuple[list[int], Flush[int, int]]:
    """A flush that answers soon, and how large its batches were."""
    sizes: list[int] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return items

    return sizes, flush


async def test_one_bad_item_fails_alone() -> None:
    results = await retry_individually(refuse_threes)([1, 2, 3, 4])
    assert [r if isinstance(r, int) else type(r) for r in results] == [10, 20, BadData, 40]


async def test_outage_fails_whole_batch() -> None:
    async def down(items: Sequence[int]) -> Sequence[int]:
        raise Unavailable

    with pytest.raises(Unavailable):
        await retry_individually(down)([1, 2])


async def test_items_flushed_before_an_outage_keep_their_results() -> None:
    async def fails_later(items: Sequence[int]) -> Sequence[int]:
        if len(items) > 1:
            raise BadData
        if items[0] == 3:
            raise Unavailable
        return items

    results = await retry_individually(fails_later)([1, 2, 3])
    assert [r if isinstance(r, int) else type(r) for r in results] == [1, 2, Unavailable]


async def test_batches_keep_to_max_items_and_no_item_is_left_queued() -> None:
    sizes, flush = noting()
    batcher = Batcher(flush, max_items=7, max_queued=1000, max_in_flight=2)
    assert await asyncio.gather(*map(batcher.submit, range(100))) == list(range(100))
    assert max(sizes) <= 7
    # An item that finds no batch in flight is flushed immediately.
    for number in range(50):
        assert await asyncio.wait_for(batcher.submit(number), 60) == number


async def test_full_queue_raises_unavailable() -> None:
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        await gate.wait()
        return items

    batcher = Batcher(flush, max_items=1, max_queued=2)
    waiting = []
    for number in range(3):
        waiting.append(asyncio.create_task(batcher.submit(number)))
        for _ in range(3):  # the first is in flight before the others queue
            await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await batcher.submit(4)
    gate.set()
    assert await asyncio.gather(*waiting) == [0, 1, 2]


async def test_second_batch_starts_beside_the_first_only_when_full() -> None:
    sizes: list[int] = []
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        sizes.append(len(items))
        await gate.wait()
        return items

    batcher = Batcher(flush, max_items=3, max_queued=100, max_in_flight=2)
    waiting = []
    for number, gone in ((1, [1]), (2, [1]), (3, [1]), (4, [1, 3]), (5, [1, 3])):
        waiting.append(asyncio.create_task(batcher.submit(number)))
        await asyncio.sleep(0.01)
        assert sizes == gone
    gate.set()
    assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5]
    assert sizes == [1, 3, 1]


async def test_batch_size_is_half_of_the_recent_peak() -> None:
    sizes, flush = noting()

    async def sender(times: int) -> None:
        for number in range(times):
            await batcher.submit(number)

    batcher = Batcher(flush, max_items=1000, max_queued=1000, step=16)
    await asyncio.gather(*(sender(20) for _ in range(64)))
    assert (sizes[0], set(sizes[1:20])) == (16, {32})  # the peak is known after the first batch
    sizes.clear()
    await asyncio.gather(*(sender(20) for _ in range(300)))
    assert set(sizes[5:20]) == {144}, "multiples of the step: 150 is none"
    sizes.clear()
    await asyncio.gather(*(sender(300) for _ in range(8)))
    assert set(sizes[:200]) == {8}, "a few items are flushed without waiting for a full batch"
    sizes.clear()
    await asyncio.gather(*(sender(5) for _ in range(64)))
    assert max(sizes) == 32, "an old peak is forgotten"


async def test_batches_keep_to_max_items_whatever_the_step_is() -> None:
    sizes, flush = noting()
    batcher = Batcher(flush, max_items=20, max_queued=1000, step=16)
    assert await asyncio.gather(*map(batcher.submit, range(500))) == list(range(500))
    assert max(sizes) == 20


@pytest.mark.parametrize("solo_time", [3600.0, 0.01])
async def test_second_batch_waits_for_solo_time(solo_time: float) -> None:
    gone: asyncio.Queue[int] = asyncio.Queue()
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        gone.put_nowait(len(items))
        await gate.wait()
        return items

    batcher = Batcher(flush, max_items=3, max_queued=100, max_in_flight=2, solo_time=solo_time)
    waiting = [asyncio.create_task(batcher.submit(number)) for number in range(10)]
    assert await gone.get() == 3
    if solo_time < 1:  # without further items: the timer starts the second batch, and no third
        assert await asyncio.wait_for(gone.get(), 30) == 3
    await asyncio.sleep(0.05)
    assert gone.empty()
    gate.set()
    assert await asyncio.gather(*waiting) == list(range(10))
    assert sum([gone.get_nowait() for _ in range(gone.qsize())]) == (4 if solo_time < 1 else 7)
    # The next item is flushed immediately.
    assert await asyncio.wait_for(batcher.submit(11), 30) == 11


async def test_solo_time_ends_with_its_batch() -> None:
    gates = [asyncio.Event() for _ in range(4)]
    gone: list[Sequence[int]] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        gone.append(items)
        await gates[len(gone) - 1].wait()
        return items

    batcher = Batcher(flush, max_items=2, max_queued=100, max_in_flight=2, solo_time=3600.0)
    waiting = [asyncio.create_task(batcher.submit(number)) for number in range(4)]
    await asyncio.sleep(0.01)
    assert gone == [[0, 1]]
    gates[0].set()
    await asyncio.gather(*waiting[:2])
    await asyncio.sleep(0.01)
    assert gone == [[0, 1], [2, 3]]
    waiting += [asyncio.create_task(batcher.submit(number)) for number in (4, 5)]
    await asyncio.sleep(0.01)
    assert len(gone) == 2, "the second batch has its solo time too"
    for gate in gates:
        gate.set()
    assert await asyncio.gather(*waiting) == [0, 1, 2, 3, 4, 5]


async def test_batch_is_full_at_max_weight() -> None:
    sizes, flush = noting()
    batcher = Batcher(flush, max_items=100, max_queued=1000, weigh=lambda item: item, max_weight=10)
    weights = [50, 50, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert await asyncio.gather(*map(batcher.submit, weights)) == weights
    assert sizes == [1, 1, 2, 10, 1]
