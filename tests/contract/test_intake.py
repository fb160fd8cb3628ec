"""Recording arrivals: what is new, what is known, and what is kept of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, Unavailable
from hookledger.model import Arrival, Item, Proof, Recorded, unpack_headers
from hookledger.receive.record import Recorder
from hookledger.states import DeliveryOutcome, KeyOrigin, State
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    SOURCE,
    WAYS,
    Raw,
    Way,
    arrival,
    claim,
    claimed,
    delivered,
    event,
    history,
    item,
    record,
    recorded,
    settle,
)

ACCEPTED, DUPLICATE, CONFLICT = DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT
SAME_BODY, INVALID = DeliveryOutcome.SAME_BODY, DeliveryOutcome.INVALID
TABLES = ("events", "identities", "requests", "deliveries")


async def test_new_event(store: Store) -> None:
    sent = delivered()
    [verdict] = await record(store, sent)
    assert verdict == Recorded(ACCEPTED, sent.event_ids[0], None)
    row = await event(store, verdict.event_id)
    assert (row.state, row.reason, row.run, row.claim, row.attempts) == (State.PENDING, None, 1, 0, 0)
    assert (row.source, row.type, row.key, row.key_origin) == (SOURCE, "invoice.paid", "evt_1", KeyOrigin.SIGNED_ID)
    assert (row.snoozes, row.crashes, row.attention, row.deliveries) == (0, 0, False, 1)
    assert row.due_at == row.received_at
    assert (row.finished_at, row.first_processed_at, row.leased_until, row.worker) == (None, None, None, None)
    assert (row.request_id, row.item) == (sent.id, 0)


async def test_nothing_to_record(store: Store, raw: Raw) -> None:
    assert await store.record([]) == []
    empty = msgspec.structs.replace(arrival(), items=(), event_ids=())
    assert await store.record([empty]) == [[]]
    assert [await raw.count(table) for table in TABLES] == [0, 0, 0, 0]


# proves R7
async def test_everything_about_the_request_is_kept_exactly(store: Store) -> None:
    body = bytes(range(256)) + b"\0\xff\xfe" * 5
    sent = arrival(
        item(
            body=body,
            provider_id="evt_1",
            object_id="in_1",
            occurred_at=1_700_000_000.25,
            delivery_id="delivery-9",
        ),
        body=body,
        query=b"a=%00&b=\xff",
        headers=((b"x-a", b"1"), (b"x-a", b"\xe9"), (b"content-type", b"")),
        remote="2001:db8::1",
        proof=Proof("stripe-v1", "ab12cd34", 1_700_000_001.5),
    )
    [verdict] = await record(store, sent)
    found = await history(store, verdict.event_id)
    assert found.request is not None
    request = found.request
    assert (request.id, request.body, request.query) == (sent.id, body, b"a=%00&b=\xff")
    assert request.headers == sent.headers
    assert unpack_headers(request.headers) == [("x-a", "1"), ("x-a", "é"), ("content-type", "")]
    assert (request.remote, request.scheme, request.secret) == ("2001:db8::1", "stripe-v1", "ab12cd34")
    assert request.signed_at == datetime.fromtimestamp(1_700_000_001.5, UTC)
    assert found.event.occurred_at == datetime.fromtimestamp(1_700_000_000.25, UTC)
    assert (found.event.provider_id, found.event.object_id) == ("evt_1", "in_1")
    assert [(d.delivery_id, d.outcome, d.event_state, d.kept) for d in found.deliveries] == [
        ("delivery-9", ACCEPTED, None, True)
    ]
    owner = await claim(store)
    assert (owner.body, owner.query, owner.headers) == (body, b"a=%00&b=\xff", sent.headers)


async def test_absent_facts_stay_absent(store: Store) -> None:
    found = await history(store, await recorded(store, body=b""))
    assert found.request is not None
    assert (found.request.body, found.request.remote, found.request.signed_at) == (b"", None, None)
    assert (found.event.occurred_at, found.event.provider_id, found.event.object_id) == (None, None, None)


@pytest.mark.parametrize("state", ["pending", "processing", *WAYS])
async def test_duplicate_names_the_event_and_its_state(store: Store, raw: Raw, state: Way | str) -> None:
    if state == "pending":
        ident = await recorded(store)
    else:
        owner = await claimed(store)
        ident = owner.id
        if state != "processing":
            assert await settle(store, owner, state)  # type: ignore[arg-type]
    before = await raw.all("events"), await raw.all("identities"), await raw.all("requests")
    now = (await event(store, ident)).state
    assert await record(store, delivered()) == [Recorded(DUPLICATE, ident, now)]
    # A duplicate never changes the event, and adds nothing but its delivery.
    assert (await raw.all("events"), await raw.all("identities"), await raw.all("requests")) == before
    found = await history(store, ident)
    assert [(d.outcome, d.event_state, d.kept) for d in found.deliveries] == [
        (ACCEPTED, None, True),
        (DUPLICATE, now, False),
    ]
    assert found.event.deliveries == 2


# proves R15
async def test_duplicates_add_up(store: Store) -> None:
    ident = await recorded(store)
    for n in range(5):
        await record(store, arrival(item(delivery_id=f"d{n}")))
    found = await history(store, ident)
    assert [d.delivery_id for d in found.deliveries] == [None, "d0", "d1", "d2", "d3", "d4"]
    assert found.event.deliveries == 6
    assert await store.delivery_counts() == {"accepted": 1, "duplicate": 5}


async def test_conflict_is_kept_with_its_bytes(store: Store, raw: Raw) -> None:
    ident = await recorded(store, body=b"one")
    before = await raw.all("events"), await raw.all("identities")
    other = delivered(body=b"two")
    assert await record(store, other) == [Recorded(CONFLICT, ident, State.PENDING)]
    assert (await raw.all("events"), await raw.all("identities")) == before
    found = await history(store, ident)
    assert [(d.request_id, d.outcome, d.event_state, d.kept) for d in found.deliveries][1:] == [
        (other.id, CONFLICT, State.PENDING, True)
    ]
    assert found.request is not None
    assert found.request.body == b"one"
    bodies = await raw.run(f"SELECT body FROM requests WHERE id = {raw.ident(other.id)}")
    assert bodies == [(b"two",)]


async def test_same_body_under_another_unsigned_id(store: Store, raw: Raw) -> None:
    ident = await recorded(store, "id-1", b"body", unsigned=True)
    before = await raw.all("events")
    again = delivered("id-2", b"body", unsigned=True)
    assert await record(store, again) == [Recorded(SAME_BODY, ident, State.PENDING)]
    assert await raw.all("events") == before
    assert (await history(store, ident)).deliveries[1].kept
    # The new id now belongs to the known event: its redelivery is a plain duplicate.
    redelivered = delivered("id-2", b"body", unsigned=True)
    assert await record(store, redelivered) == [Recorded(DUPLICATE, ident, State.PENDING)]
    assert not (await history(store, ident)).deliveries[2].kept
    await store.know_sources([SOURCE])
    assert await store.find("id-2") == [ident]
    # And with other content it is a conflict.
    changed = delivered("id-2", b"other", unsigned=True)
    assert await record(store, changed) == [Recorded(CONFLICT, ident, State.PENDING)]
    assert await raw.all("events") == before


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one batch"])
async def test_the_body_of_a_conflict_is_nobodys(store: Store, together: bool) -> None:
    """Else whoever sends a captured body under a known id keeps its own delivery from becoming an event."""
    first = delivered("id-1", b"one", unsigned=True)
    conflict = delivered("id-1", b"two", unsigned=True)
    genuine = delivered("id-2", b"two", unsigned=True)
    again = delivered("id-3", b"two", unsigned=True)
    sent = (first, conflict, genuine, again)
    if together:
        verdicts = await record(store, *sent)
    else:
        verdicts = [verdict for one in sent for verdict in await record(store, one)]
    assert [v.outcome for v in verdicts] == [ACCEPTED, CONFLICT, ACCEPTED, SAME_BODY]
    assert [v.event_id for v in verdicts] == [
        first.event_ids[0],
        first.event_ids[0],
        genuine.event_ids[0],
        genuine.event_ids[0],
    ]


async def test_same_body_of_another_source_is_new_and_of_another_type_is_not(store: Store) -> None:
    verdicts = await record(
        store,
        delivered("1", b"x", unsigned=True),
        delivered("2", b"x", unsigned=True, type="other"),
        delivered("1", b"x", unsigned=True, source="github"),
        delivered("3", b"x"),
    )
    assert [v.outcome for v in verdicts] == [ACCEPTED, SAME_BODY, ACCEPTED, ACCEPTED]


# proves R9
async def test_invalid_is_dead_lettered_with_its_bytes(store: Store) -> None:
    sent = arrival(item(body=b"{", invalid="not JSON"), body=b"{")
    assert await record(store, sent) == [Recorded(INVALID, sent.event_ids[0], None)]
    found = await history(store, sent.event_ids[0])
    assert (found.event.state, found.event.reason, found.event.due_at) == (State.FAILED, "not JSON", None)
    assert found.event.finished_at == found.event.received_at
    assert found.request is not None
    assert found.request.body == b"{"
    again = arrival(item(body=b"{", invalid="not JSON"), body=b"{")
    assert await record(store, again) == [Recorded(DUPLICATE, sent.event_ids[0], State.FAILED)]


async def test_skipped_at_intake(store: Store) -> None:
    sent = arrival(item(skip="type not allowed"))
    assert await record(store, sent) == [Recorded(ACCEPTED, sent.event_ids[0], None)]
    row = await event(store, sent.event_ids[0])
    assert (row.state, row.reason, row.due_at) == (State.SKIPPED, "type not allowed", None)
    assert row.finished_at == row.received_at
    assert await store.claim("w", [KIND], 10, 60) == []


async def test_duplicates_inside_one_batch(store: Store, raw: Raw) -> None:
    first, second, third = delivered(), delivered(), delivered(body=b"changed")
    [one], [two], [three] = await store.record([first, second, third])
    assert one == Recorded(ACCEPTED, first.event_ids[0])
    assert two == Recorded(DUPLICATE, first.event_ids[0])
    assert three == Recorded(CONFLICT, first.event_ids[0])
    assert await raw.count("events") == 1
    assert {r[0] for r in await raw.run("SELECT body FROM requests")} == {b"{}", b"changed"}


async def test_same_body_inside_one_batch(store: Store) -> None:
    sent = [delivered(f"id-{n}", b"body", unsigned=True) for n in (1, 2, 2, 3)]
    outcomes = await record(store, *sent)
    ident = sent[0].event_ids[0]
    assert outcomes == [
        Recorded(ACCEPTED, ident),
        Recorded(SAME_BODY, ident),
        Recorded(DUPLICATE, ident),
        Recorded(SAME_BODY, ident),
    ]
    assert await record(store, delivered("id-3", b"body", unsigned=True)) == [
        Recorded(DUPLICATE, ident, State.PENDING)
    ]


# proves R14
async def test_batch_with_everything_in_it(store: Store) -> None:
    known = await recorded(store, "known", b"known")
    unsigned = await recorded(store, "u-1", b"unsigned", unsigned=True)
    batch = [
        delivered("new-1"),
        delivered("known", b"known"),
        delivered("known", b"changed"),
        delivered("u-2", b"unsigned", unsigned=True),
        arrival(item("bad", invalid="broken")),
        arrival(item("skip", skip="filtered")),
        delivered("new-1"),
    ]
    verdicts = await record(store, *batch)
    assert verdicts == [
        Recorded(ACCEPTED, batch[0].event_ids[0]),
        Recorded(DUPLICATE, known, State.PENDING),
        Recorded(CONFLICT, known, State.PENDING),
        Recorded(SAME_BODY, unsigned, State.PENDING),
        Recorded(INVALID, batch[4].event_ids[0]),
        Recorded(ACCEPTED, batch[5].event_ids[0]),
        Recorded(DUPLICATE, batch[0].event_ids[0]),
    ]
    assert await store.counts() == {State.PENDING: 3, State.FAILED: 1, State.SKIPPED: 1}
    assert await store.delivery_counts() == {
        "accepted": 4,
        "duplicate": 2,
        "conflict": 1,
        "same_body": 1,
        "invalid": 1,
    }


async def test_several_items_in_one_request_one_of_them_bad(store: Store) -> None:
    sent = arrival(item("a"), item("b", invalid="no type"), item("c"), item("a"), body=b"[...]")
    [verdicts] = await store.record([sent])
    assert [v.outcome for v in verdicts] == [ACCEPTED, INVALID, ACCEPTED, DUPLICATE]
    rows = [await event(store, ident) for ident in sent.event_ids[:3]]
    assert [row.item for row in rows] == [0, 1, 2]
    assert {row.request_id for row in rows} == {sent.id}
    found = await history(store, sent.event_ids[0])
    assert [(d.request_id, d.item, d.outcome) for d in found.deliveries] == [
        (sent.id, 0, ACCEPTED),
        (sent.id, 3, DUPLICATE),
    ]
    assert found.request is not None
    assert found.request.body == b"[...]"
    claimed_ = await store.claim("w", [KIND], 10, 60)
    assert sorted(c.item for c in claimed_) == [0, 2]
    assert {c.body for c in claimed_} == {b"[...]"}


async def test_bytes_of_a_request_are_kept_if_any_item_needs_them(store: Store, raw: Raw) -> None:
    await record(store, arrival(item("a"), item("b")))
    await record(store, arrival(item("a"), item("c")))
    await record(store, arrival(item("a"), item("b")))
    assert await raw.count("requests") == 2


def _with(**changes: object) -> Item:
    return msgspec.structs.replace(item("poison"), **changes)


HOSTILE = {
    "type too long": _with(type="x" * 256),
    "key too long": _with(key="x" * 256),
    "identity not a digest": _with(identity=b"short"),
    "time out of range": _with(occurred_at=1e300),
    "lone surrogate": _with(object_id="\ud800"),
}


@pytest.mark.parametrize("poison", HOSTILE.values(), ids=HOSTILE.keys())
async def test_refused_row_takes_the_batch_with_it(store: Store, raw: Raw, poison: Item) -> None:
    await recorded(store, "before")
    before = [await raw.all(table) for table in TABLES]
    with pytest.raises(BadData):
        await store.record([delivered("a"), arrival(poison), delivered("before"), delivered("b")])
    assert [await raw.all(table) for table in TABLES] == before
    # The store works on.
    assert [v.outcome for v in await record(store, delivered("a"))] == [ACCEPTED]


@pytest.mark.parametrize("poison", HOSTILE.values(), ids=HOSTILE.keys())
async def test_recorder_isolates_the_refused_row(store: Store, poison: Item) -> None:
    gathered: list[int] = []

    class Counting:
        async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
            return await store.record_new(arrivals)

        async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
            gathered.append(len(arrivals))
            return await store.record(arrivals)

    recorder = Recorder(Counting())
    good = [delivered(f"evt_{n}") for n in range(4)]
    sent = [*good[:2], arrival(poison), *good[2:]]
    first, *results = await asyncio.gather(*map(recorder.record, [delivered("opens"), *sent]), return_exceptions=True)
    assert max(gathered) > 1, "the poison must have had neighbours"
    assert isinstance(first, list)
    assert isinstance(results.pop(2), Unavailable)
    assert results == [[Recorded(ACCEPTED, a.event_ids[0])] for a in good]
    assert await store.counts() == {State.PENDING: 5}


async def test_longest_text_that_fits(store: Store) -> None:
    ident = await recorded(store, "é" * 255, type="ü" * 255, provider_id="𝕏" * 255)
    row = await event(store, ident)
    assert (row.key, row.type, row.provider_id) == ("é" * 255, "ü" * 255, "𝕏" * 255)


async def test_large_body(store: Store) -> None:
    body = sha256(b"seed").digest() * (1 << 16)
    found = await history(store, await recorded(store, body=body))
    assert found.request is not None
    assert found.request.body == body


async def test_times_are_the_stores_own(store: Store, clock: Clock) -> None:
    before = clock.now()
    clock.offset = 86_400.0
    row = await event(store, await recorded(store))
    assert 86_000 < (row.received_at - before).total_seconds() < 87_000


async def test_pruned_event_still_owns_its_identity(store: Store, raw: Raw) -> None:
    ident: UUID = await recorded(store)
    for table in ("events", "requests", "deliveries"):
        await raw.run(f"DELETE FROM {table}")
    assert await record(store, delivered()) == [Recorded(DUPLICATE, ident, None)]
    assert await raw.count("events") == 0
