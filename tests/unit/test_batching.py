"""One that is refused does not take its neighbours with it; an outage is everyone's."""

import asyncio
from collections.abc import Sequence

import pytest

from hookledger.batching import Batcher, Flush, isolating
from hookledger.errors import BadData, Unavailable


async def refuse_threes(items: Sequence[int]) -> Sequence[int]:
    if any(item % 3 == 0 for item in items):
        raise BadData
    return [item * 10 for item in items]


def noting() -> tuple[list[int], Flush[int, int]]:
    """A flush that answers soon, and how large its groups were."""
    sizes: list[int] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return items

    return sizes, flush


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
    sizes, flush = noting()
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


async def test_one_half_of_the_crowd_goes_while_the_other_gathers() -> None:  # proves R10
    sizes, flush = noting()

    async def sender(times: int) -> None:
        for number in range(times):
            await batcher.submit(number)

    batcher = Batcher(flush, most=1000, queue=1000, step=16)
    await asyncio.gather(*(sender(20) for _ in range(64)))
    assert (sizes[0], set(sizes[1:20])) == (16, {32})  # it has to see them first
    sizes.clear()
    await asyncio.gather(*(sender(20) for _ in range(300)))
    assert set(sizes[5:20]) == {144}, "multiples of the step: 150 is none"
    sizes.clear()
    await asyncio.gather(*(sender(300) for _ in range(8)))
    assert set(sizes[:200]) == {8}, "and a few wait for nobody"
    sizes.clear()
    await asyncio.gather(*(sender(5) for _ in range(64)))
    assert max(sizes) == 32, "the crowd of long ago is forgotten"


async def test_never_more_than_the_most_however_many_there_are() -> None:  # proves R10
    sizes, flush = noting()
    batcher = Batcher(flush, most=20, queue=1000, step=16)
    assert await asyncio.gather(*map(batcher.submit, range(500))) == list(range(500))
    assert max(sizes) == 20


@pytest.mark.parametrize("patience", [3600.0, 0.01])
async def test_the_first_group_is_left_alone_for_a_while(patience: float) -> None:
    gone: asyncio.Queue[int] = asyncio.Queue()
    gate = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        gone.put_nowait(len(items))
        await gate.wait()
        return items

    batcher = Batcher(flush, most=3, queue=100, parallel=2, patience=patience)
    waiting = [asyncio.create_task(batcher.submit(number)) for number in range(10)]
    assert await gone.get() == 3
    if patience < 1:  # nobody comes any more, and still the second goes when it is time; a third never does
        assert await asyncio.wait_for(gone.get(), 30) == 3
    await asyncio.sleep(0.05)
    assert gone.empty()
    gate.set()
    assert await asyncio.gather(*waiting) == list(range(10))
    assert sum([gone.get_nowait() for _ in range(gone.qsize())]) == (4 if patience < 1 else 7)
    # And nothing is left that would hold up the next one.
    assert await asyncio.wait_for(batcher.submit(11), 30) == 11


async def test_the_time_of_a_group_that_is_back_is_over() -> None:
    gates = [asyncio.Event() for _ in range(4)]
    gone: list[Sequence[int]] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        gone.append(items)
        await gates[len(gone) - 1].wait()
        return items

    batcher = Batcher(flush, most=2, queue=100, parallel=2, patience=3600.0)
    waiting = [asyncio.create_task(batcher.submit(number)) for number in range(4)]
    await asyncio.sleep(0.01)
    assert gone == [[0, 1]]
    gates[0].set()
    await asyncio.gather(*waiting[:2])
    await asyncio.sleep(0.01)
    assert gone == [[0, 1], [2, 3]]
    waiting += [asyncio.create_task(batcher.submit(number)) for number in (4, 5)]
    await asyncio.sleep(0.01)
    assert len(gone) == 2, "the second one is left alone too"
    for gate in gates:
        gate.set()
    assert await asyncio.gather(*waiting) == [0, 1, 2, 3, 4, 5]


async def test_a_heavy_group_goes_with_few() -> None:  # proves R10
    sizes, flush = noting()
    batcher = Batcher(flush, most=100, queue=1000, weigh=lambda item: item, heaviest=10)
    weights = [50, 50, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert await asyncio.gather(*map(batcher.submit, weights)) == weights
    assert sizes == [1, 1, 2, 10, 1]
