"""Processes of the last release beside those of this one, on the migrated schema: nothing is lost or done twice.

The last release knows schema 1 alone. It refuses to start on a newer one; a process that runs during the migration
goes on, and reports that it is not ready. So its receivers and workers meet the new schema until they are replaced.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import stage_id
from hookledger.model import Claimed, Kind
from hookledger.states import DeliveryOutcome, State
from hookledger.store import SCHEMA_RANGE
from hookledger.store.ops.filters import Filter
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, SOURCE, TYPE, Raw, delivered, event, history, keys, record, settle, way_out
from tests.contract.conftest import OpenStore
from tests.contract.old_release import OldProcess, old_process, out_of_range
from tests.contract.test_order import OTHER, arrive, due, first_of_each, place
from tests.contract.test_reviews import approved


@pytest.fixture
async def old(open_store: OpenStore, clock: Clock) -> OldProcess:
    return old_process(await open_store(), clock)


async def balanced(store: Store) -> None:
    assert (await store.consistency.report()).imbalances == ()


# ── the schema ───────────────────────────────────────────────────────────────


async def test_the_old_release_does_not_start_with_this_schema(old: OldProcess, raw: Raw) -> None:
    """Though the schema supports it: that is asked by releases since, and only them."""
    assert [row[1] for row in await raw.all("schema_support")] == [1]
    newest = SCHEMA_RANGE[1]
    assert await old.schema() == newest
    assert out_of_range(newest) == (
        f"schema version {newest}, this release needs 1 to 1: it was migrated by a newer release, which can read it"
    )


# ── receivers ────────────────────────────────────────────────────────────────


async def test_an_old_receivers_event_of_an_ordered_source_is_unordered(
    store: Store, old: OldProcess, raw: Raw
) -> None:
    """It does not know the entity: the event is accepted once, processed, and neither waits nor holds others up."""
    await arrive(store, "a", 1)
    await arrive(store, "b", 2)
    [late] = await old.record(delivered("old_1", b"1", entity="sub_1", ordered=True, order_at=1.0))
    assert await old.record_new(delivered("old_2", b"2", entity="sub_1", ordered=True, order_at=1.0))
    assert late.outcome is DeliveryOutcome.ACCEPTED
    row = await event(store, late.event_id)
    assert (row.state, row.entity, row.order_at, row.ready_at) == (State.PENDING, None, None, None)
    owners = await due(store)
    assert sorted(keys(owners)) == ["a", "old_1", "old_2"]
    for owner in owners:
        assert await settle(store, owner, "complete")
    [last] = await due(store)
    assert (last.key, await settle(store, last, "complete")) == ("b", True)
    assert {state: n for state, n in (await store.counts()).items() if n} == {State.PROCESSED: 4}
    assert await raw.count("deliveries") == 4
    await balanced(store)


async def test_a_duplicate_is_one_event_whichever_receiver_gets_it_first(store: Store, old: OldProcess) -> None:
    new = await arrive(store, "a", 1)
    [second] = await old.record(delivered("a", b"a"))
    assert (second.outcome, second.event_id) == (DeliveryOutcome.DUPLICATE, new)
    assert not await old.record_new(delivered("a", b"a"))
    [first] = await old.record(delivered("b", b"b"))
    [again] = await record(store, delivered("b", b"b", entity="sub_1", ordered=True))
    assert (again.outcome, again.event_id) == (DeliveryOutcome.DUPLICATE, first.event_id)
    assert (await event(store, new)).entity == "sub_1"
    assert (await event(store, first.event_id)).entity is None
    [conflict] = await old.record(delivered("a", b"other"))
    assert conflict.outcome is DeliveryOutcome.CONFLICT
    await balanced(store)


async def test_old_and_new_receivers_race_for_each_event(store: Store, old: OldProcess, raw: Raw) -> None:
    """Each gets every event, at the same time as the other."""
    names = [f"evt_{n}" for n in range(30)]

    async def by_new(key: str) -> DeliveryOutcome:
        [found] = await record(store, delivered(key, key.encode(), entity="sub_1", ordered=True, order_at=1.0))
        return found.outcome

    async def by_old(key: str) -> DeliveryOutcome:
        [found] = await old.record(delivered(key, key.encode()))
        return found.outcome

    found = await asyncio.gather(*(how(key) for key in names for how in (by_new, by_old, by_new)))
    assert Counter(found) == {DeliveryOutcome.ACCEPTED: 30, DeliveryOutcome.DUPLICATE: 60}
    assert (await raw.count("events"), await raw.count("deliveries")) == (30, 90)
    await balanced(store)


# ── workers ──────────────────────────────────────────────────────────────────


async def test_an_old_worker_keeps_the_order(store: Store, old: OldProcess, clock: Clock) -> None:
    """It claims only the event whose turn it is, and its outcome gives the next one its turn."""
    for key, at in (("c", 3), ("a", 1), ("b", 2)):
        await arrive(store, key, at)
    assert await old.claim(KIND) == [], "only a worker of this release decides who is first"
    seen = []
    for _ in range(3):
        await place(store)
        [owner] = await old.claim(KIND)
        seen.append(owner.key)
        await place(store)
        assert await old.claim(KIND) == await store.claim("w", [KIND], 10, LEASE) == []
        assert await old.renew(owner)
        # The next is not due before a worker of this release has looked; then it is.
        assert await old.settle(way_out(owner, "complete")) == {owner.id}
        assert await old.claim(KIND) == []
    assert seen == ["a", "b", "c"]
    assert {state: n for state, n in (await store.counts()).items() if n} == {State.PROCESSED: 3}
    await balanced(store)


async def test_an_old_workers_failures_keep_the_order(store: Store, old: OldProcess, clock: Clock) -> None:
    """A retried event keeps its turn; one that failed holds what follows if the source says so."""
    await arrive(store, "a", 1, hold=True)
    await arrive(store, "b", 2, hold=True)
    await place(store)
    [first] = await old.claim(KIND)
    assert await old.settle(way_out(first, "reschedule", due_in=100.0, reason="once more"))
    await place(store)
    assert await old.claim(KIND) == []
    clock.offset += 101
    [again] = await old.claim(KIND)
    assert (again.key, again.attempts) == ("a", 2)
    assert await old.settle(way_out(again, "fail"))
    await place(store)
    assert await old.claim(KIND) == []
    await store.discard(first.id, State.FAILED, "ada", "settled elsewhere")
    await place(store)
    assert keys(await old.claim(KIND)) == ["b"]


async def test_an_old_worker_wakes_what_waits_for_an_entity(store: Store, old: OldProcess, clock: Clock) -> None:
    await arrive(store, "updated", 2)
    [waits] = await due(store)
    assert await settle(store, waits, "wait", due_in=300.0, waits_for="sub_1")
    await arrive(store, "created", 1, type=OTHER.type)
    await place(store)
    assert await old.claim(KIND) == []
    [created] = await old.claim(OTHER)
    clock.offset += 1
    assert await old.settle(way_out(created, "complete"))
    await place(store)
    [woken] = await old.claim(KIND)
    assert await old.settle(way_out(woken, "complete"))
    row = await event(store, woken.id)
    assert (row.state, row.waits_for) == (State.PROCESSED, None)
    await balanced(store)


async def test_old_and_new_processes_together(
    store: Store, old: OldProcess, open_store: OpenStore, raw: Raw, clock: Clock
) -> None:
    """A receiver and a worker of each: no two events of one entity overlap, and each runs to its end once."""
    rng = random.Random(3)
    sent = [(f"e{n}", rng.random() * 100, f"sub_{n % 5}") for n in range(60)]
    workers: list[Store | OldProcess] = [await open_store(), old_process(await open_store(), clock)]
    running: set[str] = set()
    done: list[str] = []
    entities = {key: entity for key, _, entity in sent}

    async def deliver() -> None:
        for number, (key, at, entity) in enumerate(sent):
            await arrive(store, key, at, entity)
            await old.record(delivered(key, key.encode()), delivered(f"old_{number}", b"%d" % number))

    async def claim(worker: Store | OldProcess) -> list[Claimed]:
        if isinstance(worker, OldProcess):
            return await worker.claim(KIND, limit=3)
        return await due(worker, 3)

    async def finish(worker: Store | OldProcess, owner: Claimed) -> bool:
        outcome = way_out(owner, rng.choice(["complete", "complete", "reschedule", "release"]))
        running.discard(entities.get(owner.key, owner.key))
        assert await worker.settle(*([outcome] if isinstance(worker, OldProcess) else [[outcome]])) == {owner.id}
        return outcome.transition == "complete"

    async def work(worker: Store | OldProcess) -> None:
        idle = 0
        while idle < 100 and len(done) < 2 * len(sent):
            owners = await claim(worker)
            idle = 0 if owners else idle + 1
            for owner in owners:
                entity = entities.get(owner.key, owner.key)
                assert entity not in running
                running.add(entity)
            for owner in owners:
                await asyncio.sleep(0)
                if await finish(worker, owner):
                    done.append(owner.key)
            if not owners:
                await asyncio.sleep(0.02)

    await asyncio.gather(deliver(), *map(work, workers))
    assert sorted(done) == sorted([*entities, *(f"old_{n}" for n in range(60))])
    await first_of_each(raw)
    await balanced(store)


async def test_an_old_worker_leaves_stages_alone_and_begins_none(store: Store, old: OldProcess) -> None:
    """What it processes lacks the stages, and is listed so."""
    await record(store, delivered("a", b"a"), delivered("b", b"b"))
    first, second = await old.claim(KIND)
    assert await store.settle([way_out(first, "complete", stages=("mail",))]) == {first.id}
    assert await old.settle(way_out(second, "complete")) == {second.id}
    assert await old.claim(KIND) == []
    assert (await event(store, stage_id(first.id, "mail"))).state is State.PENDING
    assert (await history(store, second.id)).stages == ()
    lacking = await store.search.events(Filter(source=SOURCE, lacks_stage="mail"), limit=10)
    assert [row.key for row in lacking] == ["b"]
    [stage] = await store.claim("w", [Kind(f"{SOURCE}/mail", TYPE)], 10, LEASE)
    assert await settle(store, stage, "complete")
    await balanced(store)


async def test_an_old_worker_cannot_end_an_approved_run(
    store: Store, old: OldProcess, raw: Raw, clock: Clock
) -> None:
    """It cannot know the approval, so it must not use it up. The database refuses its outcome together with what its
    handler wrote; the run is over when a worker of this release has ended it, with the approval, once."""
    written = "INSERT INTO done VALUES ('booked')"
    made = store.transaction()
    await made.tx.execute("CREATE TABLE done (what TEXT)")
    await made.commit([])
    ident = await approved(store)
    approval = (await event(store, ident)).approval_id
    [owner] = await old.claim(KIND)
    before = await raw.all("events"), await raw.all("attempts")
    for way in ("complete", "skip", "fail", "review"):
        with pytest.raises(BadData, match="approved_while_open"):
            await old.settle(way_out(owner, way), writes=written)
    assert (await raw.all("events"), await raw.all("attempts")) == before
    assert await raw.count("done") == 0
    # What does not end the run is allowed, and keeps the approval: a retry, or what a stopping worker releases.
    assert await old.settle(way_out(owner, "reschedule", due_in=10.0, reason="the worker was stopped"))
    clock.offset += 11
    [again] = await old.claim(KIND)
    # It stops, or dies: its lease runs out.
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(again.id, again.claim, 0.0, "the worker died")]) == 1
    [mine] = await store.claim("w", [KIND], 10, LEASE)
    assert (mine.id, mine.run, mine.approval_id) == (ident, 2, approval)
    transaction = store.transaction()
    await transaction.tx.execute(written)
    await transaction.commit([way_out(mine, "complete")])
    row = await event(store, ident)
    assert (row.state, row.approval_id, await raw.count("done")) == (State.PROCESSED, None, 1)
    await balanced(store)


async def test_an_old_worker_leaves_sources_with_versions_alone(
    store: Store, old: OldProcess, clock: Clock, raw: Raw
) -> None:
    """It would run each event with the handler of any version. The first event with one pauses the source for it, and
    for it alone; its other sources go on. What this release says of pauses does not name it."""
    await record(store, delivered("before", b"before"), delivered("elsewhere", b"elsewhere", source="github"))
    [before] = await old.claim(KIND)
    await record(store, delivered("a", b"a", version="2024-06-20"))
    versioned = Kind(SOURCE, TYPE, "2024-06-20")
    clock.offset += 10
    assert await old.claim(KIND) == await old.claim(versioned) == []
    assert await old.waiting() == [Kind("github", TYPE)]
    assert keys(await old.claim(Kind("github", TYPE))) == ["elsewhere"]
    assert await old.settle(way_out(before, "complete")) == {before.id}, "what it has claimed it may finish"
    assert await store.pauses.pauses() == []
    with pytest.raises(WrongState):
        await store.pauses.resume(SOURCE, "*", "ada", "why")
    [owner] = await store.claim("w", [versioned], 10, LEASE)
    assert await store.settle([way_out(owner, "complete", stages=("mail",))]) == {owner.id}
    assert await old.claim(Kind(f"{SOURCE}/mail", TYPE)) == []
    assert keys(await store.claim("w", [Kind(f"{SOURCE}/mail", TYPE, versioned.version)], 10, LEASE)) == ["a"]
    # An operator's pause of the same source is another one.
    await store.pauses.pause(SOURCE, "*", "ada", "why")
    await store.pauses.resume(SOURCE, "*", "ada", "why")
    assert await old.claim(KIND) == []
    await balanced(store)
