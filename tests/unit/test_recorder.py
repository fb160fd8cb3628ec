"""How the recorder groups deliveries: half of those who are here, one group after the other, few large at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hookledger.model import Arrival, Recorded
from hookledger.receive import record
from hookledger.receive.record import MAX_WEIGHT, Recorder
from hookledger.states import DeliveryOutcome
from tests.builders import delivered


class Gate:
    """A store that answers when it may, and knows which groups came."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.open = asyncio.Event()

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        self.groups.append(len(arrivals))
        await self.open.wait()
        await asyncio.sleep(0)
        return [[Recorded(DeliveryOutcome.ACCEPTED, one.event_ids[0])] for one in arrivals]

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        raise AssertionError("all of it was plainly new")


async def test_half_of_those_who_are_here() -> None:
    store = Gate()
    store.open.set()
    recorder = Recorder(store)

    async def sender(name: int) -> None:
        for number in range(10):
            await recorder.record(delivered(f"evt_{name}_{number}"))

    await asyncio.gather(*map(sender, range(64)))
    assert set(store.groups[2:15]) == {32}
    store.groups.clear()
    await asyncio.gather(*map(sender, range(500)))
    assert max(store.groups) == 64
    store.groups.clear()
    for _ in range(8):
        await asyncio.gather(*map(sender, range(64)))
    assert set(store.groups[-20:-2]) == {32}, "a rush is forgotten"


@pytest.mark.parametrize(("queues", "groups"), [(True, [16, 16]), (False, [16])])
async def test_second_commit_waits_for_solo_time_unless_the_store_queues(
    monkeypatch: pytest.MonkeyPatch, queues: bool, groups: list[int]
) -> None:
    monkeypatch.setattr(record, "SOLO_TIME", 3600.0)
    store = Gate()
    recorder = Recorder(store, queues=queues)
    waiting = [asyncio.create_task(recorder.record(delivered(f"evt_{n}"))) for n in range(40)]
    await asyncio.sleep(0.05)
    assert store.groups == groups
    store.open.set()
    assert len(await asyncio.gather(*waiting)) == sum(store.groups) == 40


async def test_few_large_bodies_concurrently() -> None:
    store = Gate()
    store.open.set()
    recorder = Recorder(store)
    large = delivered("large", b"x" * MAX_WEIGHT)
    await asyncio.gather(*(recorder.record(large) for _ in range(4)))
    assert store.groups == [1, 1, 1, 1]
