"""One entity at a time: which of its events can be claimed, after whatever happened to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from hookledger.clock import Clock
from hookledger.model import Claimed, Kind
from hookledger.states import State
from hookledger.store.connect import connect
from hookledger.store.ops import entities
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from hookledger.work.placing import Placing
from tests.builders import (
    KIND,
    LEASE,
    SOURCE,
    TYPE,
    Raw,
    Way,
    arrival,
    delivered,
    event,
    item,
    keys,
    record,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.contract.test_stages import prune

OTHER = Kind(SOURCE, "charge.refunded")


async def arrive(store: Store, key: str, at: float, entity: str = "sub_1", **other: Any) -> UUID:
    """An ordered event, which happened at this second."""
    body = key.encode()
    [recorded] = await record(
        store, delivered(key, body, entity=entity, ordered=True, order_at=1_700_000_000.0 + at, **other)
    )
    return recorded.event_id


async def place(store: Store) -> None:
    while await store.entities.place():
        pass


async def due(store: Store, limit: int = 100, kinds: tuple[Kind, ...] = (KIND, OTHER)) -> list[Claimed]:
    """Decide who is first, and claim."""
    await place(store)
    return await store.claim("w", kinds, limit, LEASE)


async def test_one_event_of_an_entity_at_a_time_the_earliest_first(store: Store) -> None:
    for key, at in (("c", 3), ("a", 1), ("b", 2)):
        await arrive(store, key, at)
    seen = []
    while owners := await due(store):
        seen += keys(owners)
        assert await due(store) == []
        assert await settle(store, owners[0], "complete")
    assert seen == ["a", "b", "c"]


async def test_nothing_is_claimed_before_it_is_decided_who_is_first(store: Store) -> None:
    """So a worker of an earlier release, which cannot decide, keeps the order."""
    await arrive(store, "b", 2)
    await arrive(store, "a", 1)
    assert await store.claim("w", [KIND], 10, LEASE) == []
    assert keys(await due(store)) == ["a"]


async def test_entities_and_unordered_events_run_in_parallel(store: Store) -> None:
    for n in range(3):
        await arrive(store, f"a{n}", n, "sub_a")
        await arrive(store, f"b{n}", n, "sub_b")
    await record(store, delivered("free_1"), delivered("free_2", b"2", entity="sub_a"))
    assert sorted(keys(await due(store))) == ["a0", "b0", "free_1", "free_2"]


async def test_types_of_a_source_share_entities_and_sources_do_not(store: Store) -> None:
    await arrive(store, "a", 1)
    await arrive(store, "b", 2, type=OTHER.type)
    other = delivered("c", b"c", source="shop", entity="sub_1", ordered=True, order_at=0.0)
    await record(store, other)
    kinds = (KIND, OTHER, Kind("shop", TYPE))
    assert sorted(keys(await due(store, kinds=kinds))) == ["a", "c"]


async def test_without_a_signed_time_arrival_decides(store: Store, clock: Clock) -> None:
    for key in ("a", "b"):
        clock.offset += 1
        await record(store, delivered(key, key.encode(), entity="e", ordered=True))
    assert keys(await due(store)) == ["a"]


async def test_an_older_arrival_goes_before_a_retrying_event(store: Store, clock: Clock) -> None:
    await arrive(store, "b", 2)
    [owner] = await due(store)
    await settle(store, owner, "reschedule", due_in=100.0)
    await arrive(store, "c", 3)
    assert await due(store) == []  # b keeps its place while it waits for its backoff
    await arrive(store, "a", 1)
    [first] = await due(store)
    assert first.key == "a"
    await settle(store, first, "complete")
    assert await due(store) == []
    clock.offset += 101
    assert keys(await due(store)) == ["b"]


async def test_an_older_arrival_waits_for_one_that_is_processing(store: Store) -> None:
    await arrive(store, "b", 2)
    [owner] = await due(store)
    await arrive(store, "a", 1)
    assert await due(store) == []
    await settle(store, owner, "release")
    assert keys(await due(store)) == ["a"]


@pytest.mark.parametrize("way", ["complete", "skip", "fail", "review"])
async def test_by_default_the_next_follows_whatever_became_of_the_first(store: Store, way: Any) -> None:
    await arrive(store, "a", 1)
    await arrive(store, "b", 2)
    [owner] = await due(store)
    await settle(store, owner, way)
    assert keys(await due(store)) == ["b"]


@pytest.mark.parametrize("way", ["fail", "review"])
async def test_hold_keeps_what_follows_until_an_operator_decides(store: Store, way: Any) -> None:
    first = await arrive(store, "b", 2, hold=True)
    await arrive(store, "c", 3, hold=True)
    [owner] = await due(store)
    await settle(store, owner, way)
    assert await due(store) == []
    await arrive(store, "a", 1, hold=True)
    [earlier] = await due(store)  # it does not follow what failed
    assert earlier.key == "a"
    await settle(store, earlier, "complete")
    assert await due(store) == []
    state = (await event(store, first)).state
    await store.discard(first, state, "ada", "settled elsewhere")
    assert keys(await due(store)) == ["c"]


async def test_a_held_event_follows_the_retry_of_what_held_it(store: Store) -> None:
    first = await arrive(store, "a", 1, hold=True)
    await arrive(store, "b", 2, hold=True)
    [owner] = await due(store)
    await settle(store, owner, "fail")
    await store.retry(first, State.FAILED, "ada", "fixed")
    [again] = await due(store)
    assert again.key == "a"
    await settle(store, again, "complete")
    assert keys(await due(store)) == ["b"]


@pytest.mark.parametrize("begun", [False, True])
async def test_what_fails_at_intake_holds_the_first_too(store: Store, clock: Clock, begun: bool) -> None:
    """Also one that may be claimed already, or is retried."""
    await arrive(store, "b", 2, hold=True)
    await arrive(store, "c", 3, hold=True)
    await place(store)
    if begun:
        [owner] = await due(store)
        assert await settle(store, owner, "reschedule", due_in=10.0)
    broken = await arrive(store, "a", 1, hold=True, invalid="not what its schema says")
    assert await due(store) == []
    clock.offset += 11
    assert await due(store) == []
    assert [one.count for one in await store.entities.held()] == [2]
    assert (await store.consistency.report()).imbalances == ()
    await store.discard(broken, State.FAILED, "ada", "settled elsewhere")
    seen = []
    for _ in range(2):
        [owner] = await due(store)
        seen.append(owner.key)
        assert await settle(store, owner, "complete")
    assert seen == ["b", "c"]


@pytest.mark.parametrize("way", ["erased", "pruned"])
async def test_what_is_gone_holds_nothing(store: Store, clock: Clock, way: str) -> None:
    first = await arrive(store, "a", 1, hold=True)
    await arrive(store, "b", 2, hold=True)
    [owner] = await due(store)
    await settle(store, owner, "fail")
    assert await due(store) == []
    assert [one.count for one in await store.entities.held()] == [1]
    row = await event(store, first)
    if way == "erased":
        await store.erasure.erase(first, row.state, row.claim, "ada", "asked")
    else:
        clock.offset += 10
        await prune(store, clock, failed=5.0)
    assert await store.entities.held() == []
    assert keys(await due(store)) == ["b"]
    assert (await store.consistency.report()).imbalances == ()


async def test_a_replay_takes_its_turn(store: Store) -> None:
    old = await arrive(store, "a", 1)
    [owner] = await due(store)
    await settle(store, owner, "complete")
    await arrive(store, "b", 2)
    [second] = await due(store)
    await store.replay(old, State.PROCESSED, "ada", "again")
    assert await due(store) == []
    await settle(store, second, "complete")
    assert keys(await due(store)) == ["a"]


async def test_discarding_what_is_next_lets_the_others_follow(store: Store) -> None:
    first = await arrive(store, "a", 1)
    second = await arrive(store, "b", 2)
    await arrive(store, "c", 3)
    await place(store)
    await store.discard(second, State.PENDING, "ada", "no")
    await store.discard(first, State.PENDING, "ada", "no")
    assert keys(await due(store)) == ["c"]


async def test_retry_now_of_an_event_that_is_not_first(store: Store) -> None:
    await arrive(store, "b", 2)
    [owner] = await due(store)
    await settle(store, owner, "reschedule", due_in=1000.0)
    await arrive(store, "a", 1)
    [first] = await due(store)
    await store.retry(owner.id, State.RETRYING, "ada", "now")
    assert await due(store) == []
    await settle(store, first, "complete")
    assert keys(await due(store)) == ["b"]


async def test_a_dead_workers_event_stays_first(store: Store, clock: Clock) -> None:
    await arrive(store, "a", 1)
    await arrive(store, "b", 2)
    [owner] = await due(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")]) == 1
    assert keys(await due(store)) == ["a"]


async def test_a_poison_event_runs_alone_and_first(store: Store, clock: Clock) -> None:
    await arrive(store, "a", 1)
    await arrive(store, "b", 2)
    for _ in range(2):
        [owner] = await due(store)
        clock.offset += LEASE + 1
        await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")])
    assert await due(store) == []
    [alone] = await store.claim_alone("w", [KIND], LEASE)
    await settle(store, alone, "complete")
    assert keys(await due(store)) == ["b"]


async def test_a_paused_type_stops_its_entities_and_no_others(store: Store) -> None:
    await arrive(store, "a", 1, type=OTHER.type)
    await arrive(store, "b", 2)
    await arrive(store, "c", 1, "sub_2")
    await store.pauses.pause(SOURCE, OTHER.type, "ada", "broken")
    assert keys(await due(store)) == ["c"]


async def test_unhandled_events_are_skipped_one_after_the_other(store: Store, clock: Clock) -> None:
    for n in range(3):
        await arrive(store, f"a{n}", n)
    clock.offset += 100
    for _ in range(3):
        await place(store)
        assert await store.skip_unhandled(KIND, 60.0, 10) == 1


async def test_several_events_of_one_entity_in_one_request(store: Store) -> None:
    items = [item(f"e{n}", entity="x", ordered=True, order_at=10.0 - n) for n in range(3)]
    await record(store, arrival(*items))
    assert keys(await due(store)) == ["e2"]


# ── waiting for an entity ──


async def test_a_waiting_event_lets_others_pass_and_is_woken(store: Store, clock: Clock) -> None:
    await arrive(store, "a", 1)
    [first] = await due(store)
    await settle(store, first, "wait", due_in=300.0, waits_for="sub_1")
    await arrive(store, "b", 2)
    [second] = await due(store)
    assert second.key == "b"
    clock.offset += 1
    await settle(store, second, "complete")
    [woken] = await due(store)
    assert (woken.key, woken.attempts) == ("a", 1)
    assert woken.waited is not None
    assert woken.waited >= 1


async def test_what_settled_since_the_claim_wakes_immediately(store: Store, clock: Clock) -> None:
    await record(store, delivered("w", b"w", entity="other"), delivered("x", b"x", entity="sub_1", type=OTHER.type))
    [waits] = await due(store, kinds=(KIND,))
    [other] = await due(store, kinds=(OTHER,))
    clock.offset += 1
    await settle(store, other, "complete")
    await place(store)
    await settle(store, waits, "wait", due_in=300.0, waits_for="sub_1")
    assert keys(await due(store)) == ["w"]


async def test_what_settled_before_the_claim_does_not(store: Store, clock: Clock) -> None:
    await record(store, delivered("x", b"x", entity="sub_1"))
    [other] = await due(store)
    await settle(store, other, "complete")
    clock.offset += 1
    await record(store, delivered("w", b"w", entity="other"))
    [waits] = await due(store)
    await settle(store, waits, "wait", due_in=300.0, waits_for="sub_1")
    assert await due(store) == []
    clock.offset += 301
    assert keys(await due(store)) == ["w"]  # it looks again


async def test_an_ordered_event_looks_again_when_nothing_wakes_it(store: Store, clock: Clock) -> None:
    await arrive(store, "a", 1)
    [first] = await due(store)
    await settle(store, first, "wait", due_in=300.0, waits_for="sub_9")
    assert await due(store) == []
    clock.offset += 301
    assert any(one.unplaced for one in await store.waiting())
    assert keys(await due(store)) == ["a"]


@pytest.mark.parametrize("way", ["release", "reschedule", "wait"])
async def test_the_bound_of_a_wait_counts_from_its_first_attempt(store: Store, clock: Clock, way: Any) -> None:
    """Whatever comes in between: a worker that stops, an error that passes, other transactions at a guard."""
    await record(store, delivered("w", b"w", entity="other"))
    [waits] = await due(store)
    assert waits.waited is None
    assert await settle(store, waits, "wait", due_in=300.0, waits_for="sub_1")
    clock.offset += 301
    [again] = await due(store)
    assert again.waited is not None
    assert await settle(store, again, way, due_in=0.0)
    clock.offset += 1
    [last] = await due(store)
    assert (last.key, last.waited is not None and last.waited > 300) == ("w", True)
    assert await settle(store, last, "review", reason="it waited too long")
    await store.retry(last.id, State.NEEDS_REVIEW, "ada", "the other is on its way")
    [new] = await due(store)
    assert new.waited is None, "an operator's decision begins a new bound"


async def test_one_settlement_wakes_once(store: Store) -> None:
    """Also where the clock stands still."""
    await record(store, delivered("w", b"w", entity="other"), delivered("x", b"x", entity="sub_1", type=OTHER.type))
    [waits] = await due(store, kinds=(KIND,))
    [other] = await due(store, kinds=(OTHER,))
    await settle(store, other, "complete")
    await settle(store, waits, "wait", due_in=300.0, waits_for="sub_1")
    [again] = await due(store)
    await settle(store, again, "wait", due_in=300.0, waits_for="sub_1")
    assert await due(store) == []


# ── what another session has locked ──


@asynccontextmanager
async def locked(postgres_url: str, *events: UUID) -> AsyncIterator[None]:
    """Another session has a transaction open that has locked these events."""
    connection = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            rows = await connection.fetch(
                "SELECT id FROM hookledger.events WHERE id = ANY($1::uuid[]) FOR UPDATE", list(events)
            )
            assert len(rows) == len(events)
            yield
    finally:
        await connection.close()


@pytest.fixture
async def on_postgres(postgres_url: str, clock: Clock) -> AsyncIterator[Store]:
    store = connect(postgres_url, clock=clock)
    await store.open(handlers=2)
    yield store
    await store.close()


async def test_a_locked_event_keeps_only_its_own_entity_waiting(
    on_postgres: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the changes of locked entities fill a batch."""
    monkeypatch.setattr(entities, "BATCH", 2)
    first = [await arrive(on_postgres, f"a{n}", 1, f"sub_a{n}") for n in range(5)]
    for n in range(5):
        await arrive(on_postgres, f"b{n}", 2, f"sub_b{n}")
        await arrive(on_postgres, f"a{n}_later", 2, f"sub_a{n}")
    placing = Placing(on_postgres)
    seen: list[str] = []
    async with locked(postgres_url, *first):
        for _ in range(3):  # each look, as a worker has many
            assert await placing.place(), "the others were decided"
            seen += keys(await on_postgres.claim("w", [KIND], 100, LEASE))
        assert sorted(seen) == [f"b{n}" for n in range(5)]
        assert [one.unplaced for one in await on_postgres.waiting()] == [True]
    assert await placing.place()
    assert sorted(keys(await on_postgres.claim("w", [KIND], 100, LEASE))) == [f"a{n}" for n in range(5)]
    assert [one.unplaced for one in await on_postgres.waiting()] == [False]


async def test_a_locked_event_that_waits_is_woken_later(on_postgres: Store, postgres_url: str, clock: Clock) -> None:
    await record(on_postgres, delivered("w", b"w", entity="other"))
    [waits] = await due(on_postgres)
    assert await settle(on_postgres, waits, "wait", due_in=300.0, waits_for="sub_1")
    await arrive(on_postgres, "a", 1)
    await arrive(on_postgres, "b", 1, "sub_2")
    owners = await due(on_postgres)
    clock.offset += 1
    await on_postgres.settle([way_out(owner, "complete") for owner in owners])
    await arrive(on_postgres, "b2", 2, "sub_2")
    placing = Placing(on_postgres)
    async with locked(postgres_url, waits.id):
        assert await placing.place()
        assert keys(await on_postgres.claim("w", [KIND], 100, LEASE)) == ["b2"]
    clock.offset += 1
    assert await placing.place()
    assert keys(await on_postgres.claim("w", [KIND], 100, LEASE)) == ["w"]


async def test_a_locked_first_event_makes_way_later(on_postgres: Store, postgres_url: str) -> None:
    second = await arrive(on_postgres, "b", 2)
    await place(on_postgres)
    await arrive(on_postgres, "a", 1)
    placing = Placing(on_postgres)
    async with locked(postgres_url, second):
        assert await placing.place()
        assert await on_postgres.claim("w", [KIND], 100, LEASE) == []
    assert await placing.place()
    assert keys(await on_postgres.claim("w", [KIND], 100, LEASE)) == ["a"]


async def test_the_same_is_decided_around_locks(store: Store, raw: Raw) -> None:
    for key, at in (("c", 3), ("a", 1), ("b", 2)):
        await arrive(store, key, at)
    seen = []
    for _ in range(3):
        await store.entities.place_all(around_locks=True)
        [owner] = await store.claim("w", [KIND], 100, LEASE)
        seen.append(owner.key)
        assert await settle(store, owner, "complete")
    assert seen == ["a", "b", "c"]
    await store.entities.place_all(around_locks=True)
    assert await raw.count("entity_changes") == 0


# ── types without a worker ──


async def test_entities_that_an_unhandled_type_blocks(store: Store) -> None:
    for n in range(3):
        await arrive(store, f"a{n}", 1, f"sub_{n}", type=OTHER.type)
    for n in range(2):
        await arrive(store, f"b{n}", 2, f"sub_{n}")
    await arrive(store, "c", 1, "sub_9")  # its turn, and nothing behind it
    await place(store)
    [found] = await store.entities.blocked_by([OTHER, Kind(SOURCE, "no.such")])
    assert (found.kind, found.entities, found.retrying) == (OTHER, 2, 0)
    [owner] = await store.claim("w", [OTHER], 1, LEASE)
    [found] = await store.entities.blocked_by([OTHER])
    assert found.entities == 1, "what is processing is handled"
    assert await settle(store, owner, "reschedule", due_in=100.0)
    [found] = await store.entities.blocked_by([OTHER])
    assert (found.entities, found.retrying) == (2, 1)
    assert await store.entities.blocked_by([KIND]) == []


# ── together ──


async def first_of_each(raw: Raw) -> None:
    """No entity has two events that can be claimed or are."""
    assert (
        await raw.run(
            "SELECT source, entity FROM events WHERE order_at IS NOT NULL AND (leased_until IS NOT NULL OR "
            "(due_at IS NOT NULL AND ready_at IS NULL)) GROUP BY source, entity HAVING count(*) > 1"
        )
        == []
    )


@pytest.mark.parametrize("seed", range(3))
async def test_workers_intake_and_operators_concurrently(open_store: OpenStore, raw: Raw, seed: int) -> None:
    """Four workers, an intake and an operator: events of one entity never overlap, and each runs to its end."""
    stores = [await open_store() for _ in range(4)]
    rng = random.Random(seed)
    sent = [(f"e{n}", rng.random() * 100, f"sub_{n % 5}") for n in range(60)]
    running: set[str] = set()
    done: list[str] = []

    async def deliver() -> None:
        for key, at, entity in sent:
            await arrive(stores[0], key, at, entity)
            await asyncio.sleep(0)

    async def work(store: Store) -> None:
        idle = 0
        while idle < 50 and len(done) < len(sent):
            owners = await due(store, 3)
            idle = 0 if owners else idle + 1
            for owner in owners:
                assert owner.entity not in running
                running.add(owner.entity or "")
            for owner in owners:
                await asyncio.sleep(0)
                way: Way = rng.choice(["complete", "complete", "reschedule", "release"])
                running.discard(owner.entity or "")
                assert await settle(store, owner, way)
                done.extend([owner.key] * (way == "complete"))
            if not owners:
                await asyncio.sleep(0.02)

    await asyncio.gather(deliver(), *map(work, stores))
    assert sorted(done) == sorted(key for key, *_ in sent)
    await first_of_each(raw)
