"""The unique constraint decides, under any concurrency."""

from __future__ import annotations

import asyncio
from collections import Counter

from hookledger.model import Recorded
from hookledger.states import DeliveryOutcome, State
from hookledger.store.protocol import Store
from tests.builders import KIND, Raw, arrival, claimed, delivered, item, record, settle
from tests.contract.conftest import OpenStore


def _tally(results: list[list[list[Recorded]]]) -> Counter[DeliveryOutcome]:
    return Counter(r.outcome for batch in results for group in batch for r in group)


# proves R5, R58
async def test_same_events_from_several_stores_concurrently(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    tasks = [stores[n % 2].record([delivered(f"evt_{k}") for k in range(20)]) for n in range(24)]
    results = await asyncio.gather(*tasks)
    assert _tally(results) == {DeliveryOutcome.ACCEPTED: 20, DeliveryOutcome.DUPLICATE: 460}
    accepted = {
        k: [batch[k][0].event_id for batch in results if batch[k][0].outcome is DeliveryOutcome.ACCEPTED]
        for k in range(20)
    }
    assert all(len(ids) == 1 for ids in accepted.values())
    # Everyone was told the same event, whoever won.
    for k in range(20):
        assert {batch[k][0].event_id for batch in results} == set(accepted[k])
    assert await raw.count("events") == 20
    assert await raw.count("identities") == 20
    assert await raw.count("deliveries") == 480


async def test_batches_in_opposite_order_do_not_deadlock(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    for turn in range(5):
        keys = [f"{turn}:{n}" for n in range(40)]
        results = await asyncio.gather(
            *(stores[n % 2].record([delivered(k) for k in keys[:: 1 if n % 2 else -1]]) for n in range(8))
        )
        assert _tally(results) == {DeliveryOutcome.ACCEPTED: 40, DeliveryOutcome.DUPLICATE: 280}


async def test_concurrent_conflicting_contents(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    results = await asyncio.gather(*(stores[n % 2].record([delivered("evt_1", b"%d" % (n % 4))]) for n in range(16)))
    assert _tally(results) == {
        DeliveryOutcome.ACCEPTED: 1,
        DeliveryOutcome.DUPLICATE: 3,
        DeliveryOutcome.CONFLICT: 12,
    }


async def test_one_body_under_many_unsigned_ids_concurrently(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    sent = [delivered(f"id-{n}", b"body", unsigned=True) for n in range(16)]
    results = await asyncio.gather(*(stores[n % 2].record([a]) for n, a in enumerate(sent)))
    assert _tally(results) == {DeliveryOutcome.ACCEPTED: 1, DeliveryOutcome.SAME_BODY: 15}
    [winner] = {batch[0][0].event_id for batch in results}
    # Every id now belongs to the one event.
    again = await record(store, *(delivered(f"id-{n}", b"body", unsigned=True) for n in range(16)))
    assert again == [Recorded(DeliveryOutcome.DUPLICATE, winner, State.PENDING)] * 16
    assert await raw.count("events") == 1


async def test_intake_neither_waits_for_nor_disturbs_processing(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("CREATE TABLE handled (n integer)")
    other = asyncio.create_task(record(store, delivered(), arrival(item("evt_2"))))
    await tx.commit([])
    assert [r.outcome for r in await other] == [DeliveryOutcome.DUPLICATE, DeliveryOutcome.ACCEPTED]
    assert await settle(store, owner, "complete")


async def test_claims_during_intake_are_exact(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    taken: list[str] = []

    async def take() -> None:
        while len(taken) < 200:
            taken.extend(c.key for c in await other.claim("w", [KIND], 7, 60))

    await asyncio.gather(
        *(store.record([delivered(f"evt_{n}:{k}") for k in range(20)]) for n in range(10)), take(), take()
    )
    assert len(taken) == len(set(taken)) == 200
