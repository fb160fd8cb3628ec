"""The short way in: whatever it records is recorded as `record` would, and what it leaves it does not touch."""

from __future__ import annotations

import asyncio
from typing import Any

from hookledger.errors import Unavailable
from hookledger.model import Arrival, Recorded
from hookledger.receive.record import Recorder
from hookledger.states import DeliveryOutcome, State
from hookledger.store.protocol import Store
from tests.builders import Raw, arrival, delivered, item, record, recorded
from tests.contract.conftest import OpenStore

FACTS = {
    "identities": "identity, kind, source, event_id, fingerprint",
    "requests": "id, source, query, headers, body, remote, scheme, secret, signed_at",
    "events": "id, source, type, key, key_origin, provider_id, object_id, occurred_at, fingerprint, request_id, "
    "item, state, reason, run, claim, attempts, due_at IS NULL, finished_at IS NULL, due_at = received_at",
    "deliveries": "event_id, request_id, item, source, outcome, event_state, delivery_id, fingerprint",
}
"""Everything but the moment."""


async def test_same_rows_as_the_long_way(store: Store, raw: Raw) -> None:
    """Both ways in, one after the other: the rows differ in ids and times alone."""
    made = [
        delivered("plain", b'{"a":1}'),
        arrival(item("invalid", invalid="not JSON")),
        arrival(item("skipped", skip="type not allowed")),
        arrival(item("full", provider_id="p", object_id="o", occurred_at=1.5, delivery_id="d"), remote="127.0.0.1"),
    ]
    await taken_in(store, made)
    short = [await raw.run(f"SELECT {facts} FROM {table} ORDER BY 1") for table, facts in FACTS.items()]
    assert all(len(rows) == 4 for rows in short)
    for table in FACTS:
        await raw.run(f"DELETE FROM {table}")
    await store.record(made)
    assert [await raw.run(f"SELECT {facts} FROM {table} ORDER BY 1") for table, facts in FACTS.items()] == short


async def taken_in(store: Store, arrivals: list[Arrival]) -> list[list[Recorded]]:
    """As the receiver does it."""
    recorder = Recorder(store)
    return list(await asyncio.gather(*map(recorder.record, arrivals)))


async def test_what_is_not_plainly_new_is_not_touched(store: Store, raw: Raw) -> None:
    await recorded(store, "known", b"body")
    before = {table: await raw.all(table) for table in FACTS}
    odd = [
        delivered("known", b"body"),
        delivered("known", b"other"),
        delivered("unsigned", b"x", unsigned=True),
        arrival(item("one"), item("two")),
    ]
    assert list(await store.record_new(odd)) == [None] * 4
    assert {table: await raw.all(table) for table in FACTS} == before


async def test_a_mixed_batch_gets_the_same_verdicts(store: Store) -> None:
    await recorded(store, "known", b"body")
    made = [
        delivered("new"),
        delivered("known", b"body"),
        delivered("new"),
        delivered("known", b"other"),
        delivered("id-1", b"same", unsigned=True),
        delivered("id-2", b"same", unsigned=True),
    ]
    outcomes = [group[0].outcome for group in await taken_in(store, made)]
    assert outcomes == [
        DeliveryOutcome.ACCEPTED,
        DeliveryOutcome.DUPLICATE,
        DeliveryOutcome.DUPLICATE,
        DeliveryOutcome.CONFLICT,
        DeliveryOutcome.ACCEPTED,
        DeliveryOutcome.SAME_BODY,
    ]
    assert await store.counts() == {State.PENDING: 3}


async def test_several_concurrent_receivers(store: Store, open_store: OpenStore, raw: Raw) -> None:
    recorders = [Recorder(s, batch=7, parallel=2) for s in (store, await open_store())]
    tasks = [recorders[n % 2].record(delivered(f"evt_{n % 20}")) for n in range(400)]
    results = await asyncio.gather(*tasks)
    assert sum(group[0].outcome is DeliveryOutcome.ACCEPTED for group in results) == 20
    assert {group[0].outcome for group in results} == {DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE}
    for key in range(20):
        assert len({group[0].event_id for group in results[key::20]}) == 1
    assert (await raw.count("events"), await raw.count("deliveries")) == (20, 400)


async def test_what_was_recorded_is_acked_though_its_neighbours_fail(store: Store) -> None:
    """Never an error for what is on disk already."""
    ident = await recorded(store, "known")

    class Failing:
        async def record_new(self, arrivals: Any) -> Any:
            return await store.record_new(arrivals)

        async def record(self, arrivals: Any) -> Any:
            if any(a.items[0].key == "known" for a in arrivals):
                raise Unavailable
            return await store.record(arrivals)

    recorder = Recorder(Failing())
    results = await asyncio.gather(
        *map(recorder.record, [delivered("opens"), delivered("new"), delivered("known")]), return_exceptions=True
    )
    shapes = [type(result) for result in results]
    on_disk = {row.key for row in await store.search.events()}
    assert shapes[2] is Unavailable
    for key, shape in zip(("opens", "new"), shapes, strict=False):
        assert (shape is list) == (key in on_disk), "acked exactly if on disk"
    assert await record(store, delivered("known")) == [Recorded(DeliveryOutcome.DUPLICATE, ident, State.PENDING)]
