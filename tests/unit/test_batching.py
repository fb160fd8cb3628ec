"""One that is refused does not take its neighbours with it; an outage is everyone's."""

import asyncio
from collections.abc import Sequence

import pytest

from hookledger.batching import Batcher, isolating
from hookledger.errors import BadData, Unavailable


async def refuse_threes(items: Sequence[int]) -> Sequence[int]:
    if any(item % 3 == 0 for item in items):
        raise BadData
    return [item * 10 for item in items]


async def test_a_refused_item_is_found_out_alone() -> None:  # proves R8
    results = await isolating(refuse_threes)([1, 2, 3, 4])
    assert [r if isinstance(r, int) else type(r) for r in results] == [10, 20, BadData, 40]


async def test_an_outage_is_everyones() -> None:  # proves R8
    async def down(items: Sequence[int]) -> Sequence[int]:
        raise Unavailable

    with pytest.raises(Unavailable):
        await isolating(down)([1, 2])


async def test_what_was_done_before_an_outage_stays_done() -> None:  # proves R8
    async def fails_later(items: Sequence[int]) -> Sequence[int]:
        if len(items) > 1:
            raise BadData
        if items[0] == 3:
            raise Unavailable
        return items

    results = await isolating(fails_later)([1, 2, 3])
    assert [r if isinstance(r, int) else type(r) for r in results] == [1, 2, Unavailable]


async def test_groups_never_exceed_the_most_and_nothing_is_left_waiting() -> None:  # proves R10
    sizes: list[int] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return items

    batcher = Batcher(flush, most=7, queue=1000, parallel=2)
    assert await asyncio.gather(*map(batcher.submit, range(100))) == list(range(100))
    assert max(sizes) <= 7
    # A lone item right after the last group has ended must not wait for anyone.
    for number in range(50):
        assert await asyncio.wait_for(batcher.submit(number), 10) == number


async def test_a_full_queue_is_said_at_once() -> None:  # proves R10
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        await gate.wait()
        return items

    batcher = Batcher(flush, most=1, queue=2)
    waiting = []
    for number in range(3):
        waiting.append(asyncio.create_task(batcher.submit(number)))
        for _ in range(3):  # the first is on its way before the others queue
            await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await batcher.submit(4)
    gate.set()
    assert await asyncio.gather(*waiting) == [0, 1, 2]


async def test_a_second_group_goes_beside_the_first_only_when_it_is_full() -> None:
    sizes: list[int] = []
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        sizes.append(len(items))
        await gate.wait()
        return items

    batcher = Batcher(flush, most=3, queue=100, parallel=2)
    waiting = []
    for number, gone in ((1, [1]), (2, [1]), (3, [1]), (4, [1, 3]), (5, [1, 3])):
        waiting.append(asyncio.create_task(batcher.submit(number)))
        await asyncio.sleep(0.01)
        assert sizes == gone
    gate.set()
    assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5]
    assert sizes == [1, 3, 1]
