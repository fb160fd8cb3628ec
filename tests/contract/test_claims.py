"""Claiming: who gets what, in which order, under which number."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hookledger.clock import Clock
from hookledger.model import Kind
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    LEASE,
    WAYS,
    Raw,
    Way,
    arrival,
    claim,
    claimed,
    crash,
    delivered,
    event,
    item,
    keys,
    record,
    recorded,
    settle,
)
from tests.contract.conftest import OpenStore

REFUND = Kind("stripe", "charge.refunded")
PUSH = Kind("github", "push")


async def test_a_claim_carries_what_the_worker_needs(store: Store, clock: Clock) -> None:
    await record(
        store, arrival(item(body=b"b", provider_id="p", object_id="o", occurred_at=5.0), body=b"b", query=b"q=1")
    )
    clock.offset += 10
    owner = await claim(store, worker="me", lease=30.0)
    row = await event(store, owner.id)
    assert (owner.claim, owner.attempts, owner.run, owner.snoozes, owner.crashes) == (1, 1, 1, 0, 0)
    assert (owner.source, owner.type, owner.key, owner.item) == ("stripe", "invoice.paid", "evt_1", 0)
    assert (owner.provider_id, owner.object_id, owner.body, owner.query) == ("p", "o", b"b", b"q=1")
    assert (owner.occurred_at, owner.received_at) == (row.occurred_at, row.received_at)
    assert 10 <= owner.run_age < 60
    assert (row.state, row.claim, row.attempts, row.worker) == (State.PROCESSING, 1, 1, "me")
    assert row.due_at is None
    assert row.leased_until is not None
    assert timedelta(seconds=40) <= row.leased_until - row.received_at < timedelta(seconds=90)


async def test_only_due_events(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await settle(store, owner, "reschedule", due_in=100.0)
    assert await store.claim("w", [KIND], 10, LEASE) == []
    clock.offset += 99
    assert await store.claim("w", [KIND], 10, LEASE) == []
    clock.offset += 2
    assert keys(await store.claim("w", [KIND], 10, LEASE)) == ["evt_1"]


async def test_only_the_kinds_asked_for(store: Store) -> None:
    await recorded(store, "a")
    await recorded(store, "b", type=REFUND.type)
    await recorded(store, "c", source=PUSH.source, type=PUSH.type)
    await recorded(store, "d", source=PUSH.source)
    assert await store.claim("w", [], 10, LEASE) == []
    assert await store.claim("w", [Kind("github", REFUND.type)], 10, LEASE) == []
    assert sorted(keys(await store.claim("w", [REFUND, PUSH], 10, LEASE))) == ["b", "c"]
    assert keys(await store.claim("w", [KIND], 10, LEASE)) == ["a"]


async def test_the_longest_due_first_across_kinds(store: Store, clock: Clock) -> None:
    for n, kind in enumerate([KIND, REFUND, PUSH, KIND, REFUND, PUSH]):
        clock.offset += 1
        await recorded(store, f"evt_{n}", source=kind.source, type=kind.type)
    assert keys(await store.claim("w", [PUSH, KIND, REFUND], 4, LEASE)) == ["evt_0", "evt_1", "evt_2", "evt_3"]
    assert keys(await store.claim("w", [PUSH, KIND, REFUND], 4, LEASE)) == ["evt_4", "evt_5"]


async def test_order_is_by_due_time_not_by_arrival(store: Store, clock: Clock) -> None:
    owner = await claimed(store, "first")
    await settle(store, owner, "reschedule", due_in=50.0)
    clock.offset += 10
    await recorded(store, "second")
    clock.offset += 50
    await recorded(store, "third")
    assert keys(await store.claim("w", [KIND], 10, LEASE)) == ["second", "first", "third"]


async def test_the_limit_is_the_limit(store: Store) -> None:
    await record(store, *(delivered(f"a{n}") for n in range(20)))
    await record(store, *(delivered(f"b{n}", type=REFUND.type) for n in range(20)))
    assert len(await store.claim("w", [KIND, REFUND], 7, LEASE)) == 7
    assert (await store.counts())[State.PROCESSING] == 7
    assert len(await store.claim("w", [KIND, REFUND], 1, LEASE)) == 1


# proves R18
async def test_many_claimers_never_get_the_same_event(store: Store, open_store: OpenStore, raw: Raw) -> None:
    kinds = [KIND, REFUND, PUSH]
    batch = [delivered(f"{kind.type}:{n}", source=kind.source, type=kind.type) for n in range(100) for kind in kinds]
    await record(store, *batch)
    stores = [store, await open_store()]

    async def take(n: int) -> list[str]:
        mine: list[str] = []
        while got := await stores[n % 2].claim(f"w{n}", kinds[n % 3 :] + kinds[: n % 3], 7, LEASE):
            assert len(got) <= 7
            mine += keys(got)
        return mine

    taken = [key for mine in await asyncio.gather(*map(take, range(8))) for key in mine]
    # A claimer may give up while a neighbour holds the rest locked: nothing is lost by that.
    taken += keys(await store.claim("last", kinds, 300, LEASE))
    assert len(taken) == len(set(taken)) == 300
    assert await raw.run("SELECT DISTINCT state, claim, attempts FROM events") == [("processing", 1, 1)]


# proves R18
@pytest.mark.parametrize("way", WAYS)
async def test_claim_number_grows_at_each_claim_and_each_way_out(store: Store, way: Way) -> None:
    owner = await claimed(store)
    assert owner.claim == 1
    assert await settle(store, owner, way)
    assert (await event(store, owner.id)).claim == 2
    if way in ("reschedule", "wait", "release"):
        assert (await claim(store)).claim == 3


@pytest.mark.parametrize("due_in", [0.0, None])
async def test_fencing_token_grows_when_a_lease_is_reclaimed(
    store: Store, clock: Clock, due_in: float | None
) -> None:
    await recorded(store)
    owner = await crash(store, clock, due_in=due_in)
    assert (await event(store, owner.id)).claim == owner.claim + 1 == 2


async def test_attempts_count_at_the_claim(store: Store) -> None:
    owner = await claimed(store)
    for attempt in (2, 3, 4):
        await settle(store, owner, "reschedule")
        owner = await claim(store)
        assert owner.attempts == attempt
        assert (await event(store, owner.id)).attempts == attempt


# ── alone ────────────────────────────────────────────────────────────────────


async def test_two_crashes_make_an_event_run_alone(store: Store, clock: Clock) -> None:
    ident = await recorded(store, "poison")
    await crash(store, clock)
    assert await store.claim_alone("w", [KIND], LEASE) == []
    await crash(store, clock)
    await recorded(store, "good")
    assert keys(await store.claim("w", [KIND], 10, LEASE)) == ["good"]
    assert await store.claim_alone("w", [REFUND], LEASE) == []
    assert await store.claim_alone("w", [], LEASE) == []
    [owner] = await store.claim_alone("w", [KIND], 30.0)
    assert (owner.id, owner.claim, owner.attempts, owner.crashes) == (ident, 5, 3, 2)
    assert await store.claim_alone("w", [KIND], LEASE) == []
    row = await event(store, ident)
    assert (row.state, row.worker) == (State.PROCESSING, "w")
    assert await settle(store, owner, "complete")


async def test_one_alone_at_a_time_when_it_is_due(store: Store, clock: Clock) -> None:
    for key in ("a", "b"):
        await recorded(store, key)
        await crash(store, clock)
        await crash(store, clock, due_in=1000.0)
    assert await store.claim_alone("w", [KIND], LEASE) == []
    clock.offset += 1100
    assert keys(await store.claim_alone("w", [KIND], LEASE)) == ["a"]
    assert keys(await store.claim_alone("w", [KIND], LEASE)) == ["b"]


async def test_a_poison_event_is_found_behind_many_unhandled_ones(store: Store, clock: Clock, raw: Raw) -> None:
    await record(store, *(delivered(f"x{n}", type="abandoned") for n in range(150)))
    await raw.run("UPDATE events SET crashes = 2")
    clock.offset += 1
    await recorded(store, "mine")
    await raw.run("UPDATE events SET crashes = 2")
    assert Kind("stripe", "invoice.paid") in [w.kind for w in await store.waiting() if w.alone]
    assert keys(await store.claim_alone("w", [KIND], LEASE)) == ["mine"]


async def test_two_that_claim_poison_events_share_nothing(
    store: Store, open_store: OpenStore, clock: Clock, raw: Raw
) -> None:
    await record(store, *(delivered(f"x{n}") for n in range(8)))
    await raw.run("UPDATE events SET crashes = 2")
    stores = [store, await open_store()]
    got = await asyncio.gather(*(stores[n % 2].claim_alone(f"w{n}", [KIND], LEASE) for n in range(8)))
    taken = [key for mine in got for key in keys(mine)]
    while more := await store.claim_alone("last", [KIND], LEASE):
        taken += keys(more)
    assert len(taken) == len(set(taken)) == 8


# ── waiting ──────────────────────────────────────────────────────────────────


async def test_waiting_is_empty_at_first(store: Store) -> None:
    assert await store.waiting() == []


async def test_waiting_lists_each_kind_with_its_first_due(store: Store, clock: Clock) -> None:
    owner = await claimed(store, "later")
    await settle(store, owner, "reschedule", due_in=500.0)
    clock.offset += 10
    await recorded(store, "a", type=REFUND.type)
    clock.offset += 10
    await recorded(store, "b", type=REFUND.type)
    await recorded(store, "c", source=PUSH.source, type=PUSH.type)
    waiting = await store.waiting()
    assert [(w.kind, w.alone) for w in waiting] == [(REFUND, False), (PUSH, False), (KIND, False)]
    assert -60 < waiting[0].due_in <= -10
    assert -10 < waiting[1].due_in <= 0
    assert 400 < waiting[2].due_in <= 480


async def test_waiting_leaves_out_what_is_not_in_the_queue(store: Store) -> None:
    for n, state in enumerate(("complete", "skip", "fail", "review")):
        owner = await claimed(store, f"evt_{n}")
        await settle(store, owner, state)  # type: ignore[arg-type]
    await claimed(store, "in work")
    assert await store.waiting() == []


async def test_waiting_tells_who_must_run_alone(store: Store, clock: Clock) -> None:
    await recorded(store, "poison")
    await crash(store, clock)
    await crash(store, clock)
    assert [(w.kind, w.alone) for w in await store.waiting()] == [(KIND, True)]
    await recorded(store, "good")
    assert sorted((w.kind.type, w.alone) for w in await store.waiting()) == [
        ("invoice.paid", False),
        ("invoice.paid", True),
    ]


async def test_waiting_with_thousands_of_one_kind(store: Store) -> None:
    await record(store, *(delivered(f"m{n}", type="m") for n in range(3000)))
    for name in ("a", "z", "m.b", "é"):
        await recorded(store, name, type=name)
    await recorded(store, "other", source="a", type="m")
    found = {(w.kind.source, w.kind.type) for w in await store.waiting()}
    assert found == {("stripe", t) for t in ("m", "a", "z", "m.b", "é")} | {("a", "m")}
    assert len(await store.waiting()) == 6


# ── held ─────────────────────────────────────────────────────────────────────


async def test_held_tells_what_a_worker_owns(store: Store) -> None:
    """For a worker whose claim was made though its answer was lost."""
    await record(store, *(delivered(f"evt_{n}") for n in range(3)))
    mine = await store.claim("mine", [KIND], 2, LEASE)
    [other] = await store.claim("other", [KIND], 2, LEASE)
    assert sorted(await store.held("mine")) == sorted((c.id, c.claim) for c in mine)
    assert await store.held("other") == [(other.id, other.claim)]
    await settle(store, other, "complete")
    assert await store.held("other") == []
    assert await store.held("nobody") == []
