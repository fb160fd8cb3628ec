"""Heartbeats, expiry and rescue."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.ids import new_id
from hookledger.observe.metrics.counts import WorkCounts
from hookledger.states import AttemptOutcome, State
from hookledger.store.connect import connect
from hookledger.store.ops.workers import Reclaim
from hookledger.store.postgres.heartbeat import PostgresHeartbeat
from hookledger.store.protocol import Store
from hookledger.work.lease import Leases
from tests.builders import KIND, LEASE, WORKER, Raw, claim, claimed, crash, event, history, keys, recorded, settle
from tests.contract.conftest import OpenStore


async def test_beat_renews_what_is_ours(store: Store, clock: Clock) -> None:
    mine = await claimed(store, "mine")
    lost = await claimed(store, "lost")
    await settle(store, lost, "release")
    await store.claim("other", [KIND], 1, LEASE)
    done = await claimed(store, "done")
    await settle(store, done, "complete")
    before = {owner.id: await event(store, owner.id) for owner in (mine, lost, done)}
    clock.offset += 30
    heartbeat = await store.heartbeat(WORKER, [], 5.0)
    claims = [(owner.id, owner.claim) for owner in (mine, lost, done)]
    assert await heartbeat.beat([*claims, (new_id(), 1)], LEASE) == {mine.id}
    assert await heartbeat.beat([], LEASE) == set()
    await heartbeat.close()
    for owner in (lost, done):
        assert await event(store, owner.id) == before[owner.id]
    row, old = await event(store, mine.id), before[mine.id]
    assert row.leased_until is not None
    assert old.leased_until is not None
    assert timedelta(seconds=29) < row.leased_until - old.leased_until < timedelta(seconds=90)
    assert (row.claim, row.attempts, row.state) == (old.claim, old.attempts, old.state)
    assert await settle(store, mine, "complete")


async def test_heartbeat_runs_on_a_separate_loop_and_thread(store: Store) -> None:
    owner = await claimed(store)

    async def beat() -> object:
        heartbeat = await store.heartbeat(WORKER, [], 5.0)
        try:
            return await heartbeat.beat([(owner.id, owner.claim)], LEASE)
        finally:
            await heartbeat.close()

    assert await asyncio.to_thread(lambda: asyncio.run(beat())) == {owner.id}


async def test_heartbeat_after_close_opens_again(store: Store) -> None:
    owner = await claimed(store)
    heartbeat = await store.heartbeat(WORKER, [], 5.0)
    for _ in range(2):
        assert await heartbeat.beat([(owner.id, owner.claim)], LEASE) == {owner.id}
        await heartbeat.close()


async def test_a_late_heartbeat_renews_an_unclaimed_lease(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    clock.offset += LEASE + 10
    assert len(await store.expired(10)) == 1
    heartbeat = await store.heartbeat(WORKER, [], 5.0)
    assert await heartbeat.beat([(owner.id, owner.claim)], LEASE) == {owner.id}
    await heartbeat.close()
    assert await store.expired(10) == []


async def test_an_outcome_that_is_just_committed_is_no_lost_claim(store: Store) -> None:
    """The heartbeat may run before the event loop has heard of the commit."""
    ended, taken = await claimed(store, "ended"), await claimed(store, "taken")
    lost, counts = list[UUID](), WorkCounts()
    open_heartbeat = partial(store.heartbeat, WORKER, [])
    leases = Leases(open_heartbeat, LEASE, lost.append, patience=60.0, stuck=lambda: None, counts=counts)
    leases.hold([ended, taken], time.monotonic())
    await settle(store, ended, "complete")
    await settle(store, taken, "release")
    await store.claim("other", [KIND], 1, LEASE)
    heartbeat = await open_heartbeat(5.0)
    await leases._beat(heartbeat)
    assert not leases.owns(taken.id), "its calls end at once"
    leases.drop(ended.id)
    assert lost == []
    leases._give_up_overdue()
    assert (lost, counts.claims_lost) == ([taken.id], 1)
    await heartbeat.close()


class _FrozenInside:
    """A connection whose process is stopped when the leases are renewed, before the commit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.frozen = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, sql: str, *given: Any, **options: Any) -> Any:
        found = await self._connection.fetch(sql, *given, **options)
        if "leased_until" in sql:
            self.frozen.set()
            await asyncio.Event().wait()
        return found


async def test_a_heartbeat_frozen_before_its_commit_keeps_no_event(postgres_url: str, clock: Clock) -> None:
    store = connect(postgres_url, clock=clock)
    await store.open(handlers=1)
    try:
        one = await claimed(store)
        heartbeat = await store.heartbeat(WORKER, [], 60.0)
        assert isinstance(heartbeat, PostgresHeartbeat)
        await heartbeat.beat([], 1.0)
        frozen = _FrozenInside(heartbeat._connection)
        heartbeat._connection = cast("Any", frozen)
        beating = asyncio.create_task(heartbeat.beat([(one.id, one.claim)], 1.0))
        await frozen.frozen.wait()
        clock.offset += LEASE + 1
        assert await store.reclaim([Reclaim(one.id, one.claim, 0.0, "died")]) == 1
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await heartbeat.close()
    finally:
        await store.close()


async def test_expired_only_after_the_lease(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    clock.offset += LEASE - 5
    assert await store.expired(10) == []
    clock.offset += 10
    [found] = await store.expired(10)
    assert (found.id, found.claim, found.source, found.type) == (owner.id, 1, "stripe", "invoice.paid")
    assert (found.attempts, found.crashes, found.worker) == (1, 0, "worker-1")
    assert LEASE <= found.run_age < LEASE + 60


async def test_expired_the_longest_first_and_bounded(store: Store, clock: Clock) -> None:
    owners = []
    for n in range(4):
        owners.append(await claimed(store, f"evt_{n}"))
        clock.offset += 1
    clock.offset += LEASE
    assert [e.id for e in await store.expired(3)] == [o.id for o in owners[:3]]


async def test_reclaim_to_retrying(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 30.0, "the worker died (crash 1)")]) == 1
    found = await history(store, owner.id)
    row = found.event
    assert (row.state, row.reason, row.crashes, row.attempts) == (
        State.RETRYING,
        "the worker died (crash 1)",
        1,
        1,
    )
    assert (row.claim, row.leased_until, row.finished_at) == (2, None, None)
    assert row.error is not None
    assert row.due_at is not None
    assert timedelta(seconds=LEASE + 31) <= row.due_at - row.received_at < timedelta(seconds=LEASE + 90)
    [attempt] = found.attempts
    assert (attempt.claim, attempt.outcome, attempt.worker) == (1, AttemptOutcome.CRASHED, "worker-1")
    assert attempt.error == row.error
    assert attempt.ended_at - attempt.started_at >= timedelta(seconds=LEASE)
    clock.offset += 31
    again = await claim(store)
    assert (again.claim, again.attempts, again.crashes) == (3, 2, 1)


async def test_reclaim_to_the_dead_letter(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, None, "attempts exhausted")]) == 1
    found = await history(store, owner.id)
    row = found.event
    assert (row.state, row.reason, row.crashes, row.due_at) == (State.FAILED, "attempts exhausted", 1, None)
    assert row.finished_at is not None
    assert [a.outcome for a in found.attempts] == [AttemptOutcome.CRASHED]


async def test_not_reclaimed_when_renewed_in_between(store: Store, clock: Clock, raw: Raw) -> None:
    owner = await claimed(store)
    clock.offset += LEASE + 1
    [found] = await store.expired(10)
    heartbeat = await store.heartbeat(WORKER, [], 5.0)
    await heartbeat.beat([(owner.id, owner.claim)], LEASE)
    await heartbeat.close()
    before = await raw.all("events"), await raw.all("attempts")
    assert await store.reclaim([Reclaim(found.id, found.claim, 0.0, "died")]) == 0
    assert (await raw.all("events"), await raw.all("attempts")) == before


@pytest.mark.parametrize("way", ["complete", "reschedule", "release"])
async def test_not_reclaimed_when_settled_in_between(store: Store, clock: Clock, way: str) -> None:
    owner = await claimed(store)
    clock.offset += LEASE + 1
    [found] = await store.expired(10)
    await settle(store, owner, way)  # type: ignore[arg-type]
    row = await event(store, owner.id)
    assert await store.reclaim([Reclaim(found.id, found.claim, 0.0, "died")]) == 0
    if way != "complete":  # claimed anew, and that lease has run out as well
        await claim(store)
        clock.offset += LEASE + 1
        assert await store.reclaim([Reclaim(found.id, found.claim, 0.0, "died")]) == 0
        row = await event(store, owner.id)
        assert row.state is State.PROCESSING
    assert (await event(store, owner.id)) == row


async def test_not_reclaimed_before_the_lease_ends(store: Store) -> None:
    owner = await claimed(store)
    assert await store.reclaim([]) == 0
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")]) == 0
    assert await settle(store, owner, "complete")


async def test_one_of_many_reclaimers_wins(store: Store, open_store: OpenStore, clock: Clock) -> None:
    stores = [store, await open_store()]
    owners = [await claimed(store, f"evt_{n}") for n in range(10)]
    clock.offset += LEASE + 1
    rescues = [Reclaim(o.id, o.claim, 0.0, "died") for o in owners]
    counts = await asyncio.gather(*(stores[n % 2].reclaim(rescues[:: 1 if n % 2 else -1]) for n in range(6)))
    assert sum(counts) == 10
    assert {(await event(store, o.id)).crashes for o in owners} == {1}


async def test_outcome_and_reclaim_race(store: Store, open_store: OpenStore, clock: Clock) -> None:
    other = await open_store()
    for n in range(10):
        owner = await claimed(store, f"evt_{n}", type=f"kind-{n}")
        clock.offset += LEASE + 1
        settled, rescued = await asyncio.gather(
            settle(store, owner, "complete"), other.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")])
        )
        assert settled + rescued == 1
        found = await history(store, owner.id)
        assert len(found.attempts) == 1
        assert found.event.state is (State.PROCESSED if settled else State.RETRYING)


async def test_crashes_are_counted(store: Store, clock: Clock) -> None:
    ident = await recorded(store)
    for crashes in (1, 2):
        await crash(store, clock)
        assert (await event(store, ident)).crashes == crashes
    assert keys(await store.claim("w", [KIND], 1, LEASE)) == []
    assert [a.outcome for a in (await history(store, ident)).attempts] == [AttemptOutcome.CRASHED] * 2
