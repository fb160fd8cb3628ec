"""Odd deliveries, and what operators make of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import new_id
from hookledger.model import Arrival, Item, Recorded
from hookledger.states import DeliveryOutcome, KeyOrigin, State
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    SOURCE,
    Raw,
    arrival,
    claim,
    delivered,
    event,
    history,
    item,
    record,
    recorded,
    settle,
)
from tests.contract.conftest import OpenStore

DUPLICATE, CONFLICT = DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT
SAME_BODY = DeliveryOutcome.SAME_BODY
TABLES = ("events", "identities", "requests", "deliveries", "actions")


async def conflicting(store: Store, key: str = "evt_1", body: bytes = b"two", **other: bool) -> Arrival:
    """A conflict with an event of this key, which is recorded first if need be."""
    await record(store, delivered(key, b"one", **other))
    sent = delivered(key, body, **other)
    [verdict] = await record(store, sent)
    assert verdict.outcome is CONFLICT
    return sent


async def same_body(store: Store, key: str = "id-2") -> Arrival:
    """The body of `id-1` under another id."""
    await record(store, delivered("id-1", b"body", unsigned=True))
    sent = delivered(key, b"body", unsigned=True)
    [verdict] = await record(store, sent)
    assert verdict.outcome is SAME_BODY
    return sent


# ── review at intake ─────────────────────────────────────────────────────────


# proves R14
@pytest.mark.parametrize("way", ["record", "record_new"])
async def test_to_be_reviewed_from_the_start(store: Store, way: str) -> None:
    sent = arrival(item(review="older than the horizon"))
    if way == "record" or await store.record_new([sent]) == [None]:
        await store.record([sent])
    row = await event(store, sent.event_ids[0])
    assert (row.state, row.reason) == (State.NEEDS_REVIEW, "older than the horizon")
    assert (row.due_at, row.finished_at, row.alert) == (None, None, None)
    assert await store.claim("w", [KIND], 10, 60) == []
    assert await record(store, delivered()) == [Recorded(DUPLICATE, row.id, State.NEEDS_REVIEW)]
    await store.retry(row.id, State.NEEDS_REVIEW, "ada", "it is ours")
    assert (await claim(store)).id == row.id


# ── what is shown ────────────────────────────────────────────────────────────


async def test_quarantined_deliveries(store: Store) -> None:
    first = await recorded(store, "evt_1", b"one")
    unsigned = await recorded(store, "id-1", b"body", unsigned=True)
    other = await recorded(store, "evt_1", b"one", source="github")
    conflict, again = arrival(item("evt_1", b"two", delivery_id="d-7")), delivered("id-2", b"body", unsigned=True)
    elsewhere = delivered("evt_1", b"two", source="github")
    plain = delivered("evt_1", b"one")
    await record(store, conflict, again, elsewhere, plain)
    found = await store.quarantine.quarantined()
    assert [(o.request_id, o.item, o.outcome, o.event_id, o.event_key) for o in found] == [
        (elsewhere.id, 0, CONFLICT, other, "evt_1"),
        (again.id, 0, SAME_BODY, unsigned, "id-1"),
        (conflict.id, 0, CONFLICT, first, "evt_1"),
    ]
    assert [(o.source, o.event_state, o.delivery_id, o.accepted_as) for o in found] == [
        ("github", State.PENDING, None, None),
        (SOURCE, State.PENDING, None, None),
        (SOURCE, State.PENDING, "d-7", None),
    ]
    one = await store.quarantine.quarantined(source=SOURCE, outcome=SAME_BODY)
    assert one == found[1:2]
    assert await store.quarantine.quarantined(source=SOURCE) == found[1:]
    assert await store.quarantine.quarantined(outcome=CONFLICT) == [found[0], found[2]]
    assert await store.quarantine.quarantined(outcome=DUPLICATE) == []
    assert await store.quarantine.quarantined(source="nobody") == []
    assert await store.quarantine.quarantined(before=again.id) == found[2:]
    assert await store.quarantine.quarantined(limit=1) == found[:1]
    assert await store.quarantine.quarantined(limit=0) == await store.quarantine.quarantined(limit=-1) == []


async def test_pages_do_not_cut_a_request(store: Store) -> None:
    """The next page begins before a request: what was left of it on this page would never be seen."""
    await record(store, *(delivered(f"evt_{n}", b"one") for n in range(4)))
    await record(store, delivered("id-1", b"body", unsigned=True))
    mixed = [item(f"evt_{n}", b"two") for n in range(3)] + [item("id-2", b"body", unsigned=True)]
    sent = [arrival(*mixed), delivered("evt_3", b"two"), delivered("evt_3", b"three")]
    await record(store, *sent)
    seen, before = [], None
    for _ in range(3):
        page = await store.quarantine.quarantined(before=before, limit=1)
        seen += [(odd.request_id, odd.item) for odd in page]
        before = page[-1].request_id
    assert seen == [(sent[2].id, 0), (sent[1].id, 0), *((sent[0].id, n) for n in range(4))]
    assert await store.quarantine.quarantined(before=before) == []


async def test_find_delivery(store: Store) -> None:
    await record(store, delivered("a", b"1"), delivered("b", b"1"))
    sent = arrival(item("a", b"2"), item("c"), item("b", b"2"))
    await record(store, sent)
    name = str(sent.id)
    assert await store.quarantine.find_delivery(name) == [(sent.id, 0), (sent.id, 2)]
    assert await store.quarantine.find_delivery(f"{name}:2") == [(sent.id, 2)]
    assert await store.quarantine.find_delivery(f"{sent.id.hex}:0") == [(sent.id, 0)]
    assert (sent.id, 0) in await store.quarantine.find_delivery(name[:13])
    for wrong in (f"{name}:1", f"{name}:9", str(new_id())):
        assert await store.quarantine.find_delivery(wrong) == []


@pytest.mark.parametrize(
    "reference", ["", ":", ":0", "no", "{}:", "{}:x", "{}:-1", "{}:٣", "{}:99999999999", "{}:0:0"]
)
async def test_references_that_mean_nothing(store: Store, reference: str) -> None:
    sent = await conflicting(store)
    assert await store.quarantine.find_delivery(reference.format(sent.id)) == []


async def test_the_kept_bytes_of_a_request(store: Store) -> None:
    sent = await conflicting(store)
    found = await store.quarantine.request(sent.id)
    assert found is not None
    assert (found.id, found.source, found.body, found.scheme) == (sent.id, SOURCE, b"two", "hmac-sha256")
    assert await store.quarantine.request(new_id()) is None


# ── admit ────────────────────────────────────────────────────────────────────


async def test_a_conflict_is_admitted(store: Store, clock: Clock) -> None:
    first = await recorded(store, "evt_1", b"one")
    await claim(store)
    sent = await conflicting(store)
    before = await event(store, first)
    clock.offset += 100
    changed = item("evt_1", b"two", provider_id="p", object_id="o", occurred_at=1.5)
    ident = await store.quarantine.accept(sent.id, 0, changed, "ada", "two invoices under one id")
    found = await history(store, ident)
    row = found.event
    assert (row.key, row.key_origin, row.state, row.source, row.type) == (
        "evt_1~2",
        KeyOrigin.QUARANTINE,
        State.PENDING,
        SOURCE,
        changed.type,
    )
    assert (row.provider_id, row.object_id, row.request_id, row.item) == ("p", "o", sent.id, 0)
    assert (row.run, row.claim, row.attempts, row.reason, row.alert) == (1, 0, 0, None, None)
    assert found.request is not None
    assert found.request.body == b"two"
    assert [(d.request_id, d.outcome, d.received_at) for d in found.deliveries] == [
        (sent.id, CONFLICT, row.received_at)
    ]
    [action] = found.actions
    assert (action.name, action.actor, action.reason) == ("accept", "ada", "two invoices under one id")
    assert (action.subject, action.from_state, action.to_state) == (f"{sent.id}:0", "conflict", "pending")
    assert (action.at - row.received_at).total_seconds() >= 100
    # The first event is untouched, and the delivery says what became of it.
    assert await event(store, first) == before
    [odd] = await store.quarantine.quarantined()
    assert (odd.event_id, odd.accepted_as) == (first, ident)
    # It is worked off like any other.
    owner = await claim(store)
    assert (owner.id, owner.body, owner.run_age < 60) == (ident, b"two", True)
    assert await settle(store, owner, "complete")
    await store.know_sources([SOURCE])
    assert await store.find("evt_1~2") == [ident]
    assert await store.find("evt_1") == [first]


async def test_what_was_admitted_is_a_duplicate_from_then_on(store: Store, raw: Raw) -> None:
    first = await recorded(store, "evt_1", b"one")
    sent = await conflicting(store)
    ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why")
    tables = [await raw.all(table) for table in TABLES if table != "deliveries"]
    batch = [delivered("evt_1", body) for body in (b"two", b"one", b"two")]
    assert await record(store, *batch) == [
        Recorded(DUPLICATE, ident, State.PENDING),
        Recorded(DUPLICATE, first, State.PENDING),
        Recorded(DUPLICATE, ident, State.PENDING),
    ]
    assert list(await store.record_new([delivered("evt_1", b"two")])) == [None]
    assert [await raw.all(table) for table in TABLES if table != "deliveries"] == tables
    assert await record(store, delivered("evt_1", b"three")) == [Recorded(CONFLICT, first, State.PENDING)]
    assert (await event(store, ident)).deliveries == 3
    assert await store.alerts.again([ident]) == {ident: 2}


async def test_a_known_body_is_admitted(store: Store) -> None:
    sent = await same_body(store)
    await store.know_sources([SOURCE])
    [first] = await store.find("id-1")
    ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "two dispatches")
    row = await event(store, ident)
    assert (row.key, row.key_origin, row.state) == ("id-2~2", KeyOrigin.QUARANTINE, State.PENDING)
    [action] = (await history(store, ident)).actions
    assert (action.subject, action.from_state) == (f"{sent.id}:0", "same_body")
    # The id is its own now; the body and the first id stay with the first event.
    for key, owner in (("id-2", ident), ("id-1", first)):
        assert await record(store, delivered(key, b"body", unsigned=True)) == [
            Recorded(DUPLICATE, owner, State.PENDING)
        ]
        assert await store.find(key) == [owner]
    assert await record(store, delivered("id-3", b"body", unsigned=True)) == [
        Recorded(SAME_BODY, first, State.PENDING)
    ]
    assert await record(store, delivered("id-2", b"other", unsigned=True)) == [
        Recorded(CONFLICT, ident, State.PENDING)
    ]


async def test_the_body_of_an_admitted_conflict_is_known_under_other_ids(store: Store) -> None:
    """Else a captured body becomes an event again under any unsigned id."""
    sent = await conflicting(store, unsigned=True)
    ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why")
    assert await record(store, delivered("evt_9", b"two", unsigned=True)) == [
        Recorded(SAME_BODY, ident, State.PENDING)
    ]
    # Unless it was an event of its own by then: that keeps it.
    rival = await conflicting(store, body=b"three", unsigned=True)
    genuine = await recorded(store, "evt_7", b"three", unsigned=True)
    await store.quarantine.accept(rival.id, 0, rival.items[0], "ada", "why")
    assert await record(store, delivered("evt_8", b"three", unsigned=True)) == [
        Recorded(SAME_BODY, genuine, State.PENDING)
    ]


async def test_each_admission_has_the_next_number(store: Store) -> None:
    for key in ("evt_1", "é" * 255):
        for n in range(2, 13):
            sent = await conflicting(store, key, b"%d" % n)
            ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why")
            assert (await event(store, ident)).key == f"{key[: 254 - len(str(n))]}~{n}"
    elsewhere = delivered("evt_1", b"two", source="github")
    await record(store, delivered("evt_1", b"one", source="github"), elsewhere)
    ident = await store.quarantine.accept(elsewhere.id, 0, elsewhere.items[0], "ada", "why")
    assert (await event(store, ident)).key == "evt_1~2", "of its own source"


async def test_items_of_one_request_are_accepted_separately(store: Store) -> None:
    await record(store, delivered("a", b"1"), delivered("b", b"1"))
    sent = arrival(item("a", b"2"), item("b", b"2"))
    await record(store, sent)
    idents = [await store.quarantine.accept(sent.id, n, sent.items[n], "ada", "why") for n in (1, 0)]
    assert [(row.key, row.item) for row in [await event(store, i) for i in idents]] == [("b~2", 1), ("a~2", 0)]


async def test_admitted_twice(store: Store, raw: Raw) -> None:
    sent, again = await conflicting(store), delivered("evt_1", b"two")
    await record(store, again)
    unsigned = await same_body(store)
    ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why")
    other = await store.quarantine.accept(unsigned.id, 0, unsigned.items[0], "ada", "why")
    before = [await raw.all(table) for table in TABLES]
    for delivery, known in ((sent, ident), (again, ident), (unsigned, other)):
        with pytest.raises(WrongState, match=str(known)):
            await store.quarantine.accept(delivery.id, 0, delivery.items[0], "bob", "me too")
    # Nor when the rules for keys have changed meanwhile.
    with pytest.raises(WrongState, match=str(ident)):
        await store.quarantine.accept(sent.id, 0, item("another", b"two"), "bob", "me too")
    assert [await raw.all(table) for table in TABLES] == before


async def test_only_quarantined_deliveries_with_their_bytes_can_be_accepted(store: Store, raw: Raw) -> None:
    plain, duplicate, sent = delivered("evt_1", b"one"), delivered("evt_1", b"one"), await conflicting(store)
    await record(store, plain, duplicate)
    await raw.run(f"DELETE FROM requests WHERE id = {raw.ident(sent.id)}")
    before = [await raw.all(table) for table in TABLES]
    for ident, place in ((new_id(), 0), (plain.id, 0), (duplicate.id, 0), (sent.id, 0), (sent.id, 1), (sent.id, -1)):
        with pytest.raises(WrongState, match=str(ident)):
            await store.quarantine.accept(ident, place, item(), "ada", "why")
    assert [await raw.all(table) for table in TABLES] == before


HOSTILE: list[tuple[Item, str, str]] = [
    (item("evt_1", b"two"), "", "why"),
    (item("evt_1", b"two"), "ada", ""),
    (item("evt_1", b"two", type="x" * 256), "ada", "why"),
    (item("evt_1", b"two", occurred_at=1e300), "ada", "why"),
    (item("evt_1", b"two", object_id="\ud800"), "ada", "why"),
]


@pytest.mark.parametrize(("given", "actor", "reason"), HOSTILE)
async def test_a_refused_admission_leaves_nothing(
    store: Store, raw: Raw, given: Item, actor: str, reason: str
) -> None:
    sent = await conflicting(store)
    before = [await raw.all(table) for table in TABLES]
    with pytest.raises(BadData):
        await store.quarantine.accept(sent.id, 0, given, actor, reason)
    assert [await raw.all(table) for table in TABLES] == before
    await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why")


async def test_concurrent_admissions(store: Store, open_store: OpenStore, raw: Raw) -> None:
    """The same delivery, others with the same content, and others with other contents under the same key."""
    stores = [store, await open_store()]
    sent = [await conflicting(store)]
    for body in (b"two", b"three", b"four"):
        sent.append(delivered("evt_1", body))
        await record(store, sent[-1])
    results = await asyncio.gather(
        *(
            stores[n % 2].quarantine.accept(sent[n % 4].id, 0, sent[n % 4].items[0], f"operator {n}", "why")
            for n in range(16)
        ),
        return_exceptions=True,
    )
    admitted = [result for result in results if isinstance(result, UUID)]
    refused = [str(result) for result in results if isinstance(result, WrongState)]
    assert (len(admitted), len(refused)) == (3, 13)
    assert all(any(str(ident) in words for ident in admitted) for words in refused)
    rows = [await event(store, ident) for ident in admitted]
    assert sorted(row.key for row in rows) == ["evt_1~2", "evt_1~3", "evt_1~4"]
    assert await raw.count("events") == 4
    assert await raw.count("actions") == 3


async def test_a_known_body_is_accepted_concurrently_once(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores, sent = [store, await open_store()], await same_body(store)
    results = await asyncio.gather(
        *(stores[n % 2].quarantine.accept(sent.id, 0, sent.items[0], "ada", "why") for n in range(8)),
        return_exceptions=True,
    )
    assert Counter(isinstance(result, WrongState) for result in results) == {True: 7, False: 1}
    assert await raw.count("events") == 2


async def test_admitted_while_it_is_delivered_again(store: Store, open_store: OpenStore, raw: Raw) -> None:
    """Each redelivery is either one more conflict or a duplicate of the admitted event; never an event."""
    other, sent = await open_store(), await conflicting(store)
    before = await raw.count("deliveries")

    async def redeliver() -> list[Recorded]:
        return [verdict for _ in range(20) for verdict in await record(other, delivered("evt_1", b"two"))]

    ident, *again = await asyncio.gather(
        store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why"), redeliver(), redeliver()
    )
    verdicts = [verdict for group in again for verdict in group]
    assert {v.outcome for v in verdicts} <= {CONFLICT, DUPLICATE}
    assert {v.event_id for v in verdicts if v.outcome is DUPLICATE} <= {ident}
    assert (await record(store, delivered("evt_1", b"two")))[0].event_id == ident
    assert (await raw.count("events"), await raw.count("deliveries")) == (2, before + 41)


async def test_pruned_but_admitted(store: Store, raw: Raw) -> None:
    sent, again = await conflicting(store), delivered("evt_1", b"two")
    await record(store, again)
    ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "why")
    await raw.run("DELETE FROM events")
    assert await record(store, delivered("evt_1", b"two")) == [Recorded(DUPLICATE, ident, None)]
    with pytest.raises(WrongState, match=str(ident)):
        await store.quarantine.accept(again.id, 0, again.items[0], "ada", "why")
    odd = await store.quarantine.quarantined()
    assert [(o.event_key, o.accepted_as) for o in odd] == [(None, None)] * 2


async def test_an_accepted_event_has_its_version_and_its_place_in_the_order(store: Store) -> None:
    """As any other of its content: its handler is that of its version, and it waits for its turn."""
    facts: dict[str, Any] = {
        "version": "2024-06-20",
        "entity": "sub_1",
        "ordered": True,
        "order_at": 1.7e9,
        "hold": True,
    }
    first = delivered("evt_1", b"1", **facts)
    sent = delivered("evt_1", b"2", **facts)
    await record(store, first)
    [met] = await record(store, sent)
    assert met.outcome is DeliveryOutcome.CONFLICT
    ident = await store.quarantine.accept(sent.id, 0, sent.items[0], "ada", "two events under one id")
    known, accepted = await event(store, met.event_id), await event(store, ident)
    for name in ("version", "entity", "order_at", "hold", "ready_at"):
        assert (getattr(accepted, name) is None) == (getattr(known, name) is None), name
    assert (accepted.version, accepted.entity, accepted.hold) == ("2024-06-20", "sub_1", True)
    assert accepted.order_at == known.order_at
