"""Every way out of `processing`, every field of it, and the fence that guards them all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData
from hookledger.ids import new_id
from hookledger.model import Outcome
from hookledger.observe.metrics.counts import WorkCounts
from hookledger.states import BY_NAME, State
from hookledger.store.connect import connect
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from hookledger.work.outcome import UNSTORABLE, Settler
from tests.builders import (
    LEASE,
    WAYS,
    WORKER,
    Raw,
    Way,
    claim,
    claimed,
    event,
    history,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore


@pytest.mark.parametrize("way", WAYS)
async def test_every_field_of_every_way_out(store: Store, clock: Clock, way: Way) -> None:
    owner = await claimed(store)
    clock.offset += 5
    outcome = Outcome(
        owner.id, owner.claim, way, reason="the reason", due_in=100.0, result='{"a":1}', error="Traceback …"
    )
    assert await store.settle([outcome]) == {owner.id}
    found = await history(store, owner.id)
    row = found.event
    assert row.state is BY_NAME[way].target
    assert (row.reason, row.result, row.error) == ("the reason", '{"a":1}', "Traceback …")
    assert (row.leased_until, row.claim, row.run, row.crashes) == (None, 2, 1, 0)
    waits = row.state in (State.PENDING, State.RETRYING)
    final = row.state in (State.PROCESSED, State.SKIPPED, State.FAILED)
    assert (row.due_at is not None, row.finished_at is not None) == (waits, final)
    if row.due_at:
        assert timedelta(seconds=105) <= row.due_at - row.received_at < timedelta(seconds=165)
    if row.finished_at:
        assert timedelta(seconds=5) <= row.finished_at - row.received_at < timedelta(seconds=65)
    if way == "complete":
        assert row.first_processed_at is not None
        assert row.finished_at is not None
        assert abs(row.first_processed_at - row.finished_at) < timedelta(seconds=1)
    else:
        assert row.first_processed_at is None
    assert row.attempts == (0 if way in ("wait", "release") else 1)
    assert row.snoozes == (1 if way == "wait" else 0)
    if way == "release":
        assert found.attempts == ()
    else:
        [attempt] = found.attempts
        assert (attempt.claim, attempt.run, attempt.worker) == (1, 1, "worker-1")
        assert (attempt.outcome, attempt.error) == (BY_NAME[way].attempt, "Traceback …")
        assert timedelta(seconds=5) <= attempt.ended_at - attempt.started_at < timedelta(seconds=65)


@pytest.mark.parametrize("way", ["complete", "reschedule", "wait", "release"])
async def test_what_is_not_said_is_not_kept(store: Store, way: Way) -> None:
    owner = await claimed(store)
    await settle(store, owner, "reschedule", reason="old", result="old", error="old")
    owner = await claim(store)
    await settle(store, owner, way)
    row = await event(store, owner.id)
    assert (row.reason, row.result, row.error) == (None, None, None)


async def test_budget_over_several_rounds(store: Store) -> None:
    await recorded(store)
    expected = {"attempts": 0, "snoozes": 0}
    ways: list[Way] = ["reschedule", "wait", "release", "wait", "reschedule", "complete"]
    for way in ways:
        owner = await claim(store)
        assert owner.attempts == expected["attempts"] + 1
        assert owner.snoozes == expected["snoozes"]
        await settle(store, owner, way)
        expected["attempts"] += way not in ("wait", "release")
        expected["snoozes"] += way == "wait"
        row = await event(store, owner.id)
        assert (row.attempts, row.snoozes) == (expected["attempts"], expected["snoozes"])
    found = await history(store, row.id)
    # Claims 1, 3, 5 …: each way out took a number too; the release left no attempt.
    assert [(a.claim, a.outcome.value) for a in found.attempts] == [
        (1, "retrying"),
        (3, "waiting"),
        (7, "waiting"),
        (9, "retrying"),
        (11, "processed"),
    ]


async def test_first_processed_at_is_kept_over_later_runs(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await settle(store, owner, "complete")
    first = (await event(store, owner.id)).first_processed_at
    assert first is not None
    for way in ("complete", "fail"):
        clock.offset += 100
        await store.replay(owner.id, State.PROCESSED, "ada", "again")
        again = await claim(store)
        await settle(store, again, way)
        row = await event(store, owner.id)
        assert row.first_processed_at == first
        assert row.finished_at is not None
        assert row.finished_at > first
    assert [a.run for a in (await history(store, owner.id)).attempts] == [1, 2, 3]


async def test_many_outcomes_in_one_batch(store: Store) -> None:
    owners = [await claimed(store, f"evt_{n}") for n in range(len(WAYS))]
    outcomes = [way_out(owner, way) for owner, way in zip(owners, WAYS, strict=True)]
    assert await store.settle([]) == set()
    assert await store.settle(outcomes) == {owner.id for owner in owners}
    states = [(await event(store, owner.id)).state for owner in owners]
    assert states == [BY_NAME[way].target for way in WAYS]


# ── the fence ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", WAYS)
async def test_an_outcome_counts_once(store: Store, raw: Raw, way: Way) -> None:
    owner = await claimed(store)
    assert await settle(store, owner, "complete")
    before = await raw.all("events"), await raw.all("attempts")
    assert await store.settle([way_out(owner, way)]) == set()
    assert (await raw.all("events"), await raw.all("attempts")) == before


@pytest.mark.parametrize("way", WAYS)
async def test_an_old_claim_changes_nothing(store: Store, raw: Raw, way: Way) -> None:
    zombie = await claimed(store)
    await settle(store, zombie, "release")
    owner = await claim(store, worker="worker-2")
    before = await raw.all("events"), await raw.all("attempts")
    for number in (zombie.claim, zombie.claim + 1, owner.claim + 1, 0):
        assert await store.settle([Outcome(zombie.id, number, way, reason="zombie")]) == set()
    assert (await raw.all("events"), await raw.all("attempts")) == before
    assert await settle(store, owner, "complete")


# proves R19
@pytest.mark.parametrize("way", WAYS)
async def test_a_zombie_cannot_settle_after_its_lease_was_reclaimed(
    store: Store, clock: Clock, raw: Raw, way: Way
) -> None:
    zombie = await claimed(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(zombie.id, zombie.claim, 0.0, "died")]) == 1
    before = await raw.all("events"), await raw.all("attempts")
    assert await store.settle([way_out(zombie, way)]) == set()
    assert (await raw.all("events"), await raw.all("attempts")) == before
    owner = await claim(store, worker="worker-2")
    before = await raw.all("events"), await raw.all("attempts")
    assert await store.settle([way_out(zombie, way)]) == set()
    assert (await raw.all("events"), await raw.all("attempts")) == before
    assert await settle(store, owner, "complete")
    assert await store.settle([way_out(zombie, way)]) == set()
    assert (await event(store, zombie.id)).state is State.PROCESSED


async def test_unknown_event(store: Store) -> None:
    assert await store.settle([Outcome(new_id(), 1, "complete")]) == set()


async def test_late_ones_do_not_hold_back_the_others(store: Store) -> None:
    late, good = await claimed(store, "late"), await claimed(store, "good")
    await settle(store, late, "fail")
    assert await store.settle([way_out(late, "complete"), way_out(good, "complete")]) == {good.id}
    assert (await event(store, late.id)).state is State.FAILED
    assert (await event(store, good.id)).state is State.PROCESSED


async def test_one_of_many_racing_outcomes_wins(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    owner = await claimed(store)
    ways = [WAYS[n % len(WAYS)] for n in range(14)]
    won = await asyncio.gather(*(settle(stores[n % 2], owner, way) for n, way in enumerate(ways)))
    assert won.count(True) == 1
    row = await event(store, owner.id)
    assert (row.state, row.claim) == (BY_NAME[ways[won.index(True)]].target, 2)


async def test_writers_of_several_events_do_not_deadlock(store: Store, open_store: OpenStore, clock: Clock) -> None:
    other = await open_store()
    heartbeat = await other.heartbeat(WORKER, [], 5.0)
    for turn in range(5):
        owners = [await claimed(store, f"{turn}:{n}") for n in range(20)]
        claims = [(o.id, o.claim) for o in owners]
        renewed, settled, kept = await asyncio.gather(
            heartbeat.beat(claims, LEASE),
            store.settle([way_out(o, "complete") for o in reversed(owners)]),
            other.settle([way_out(o, "complete") for o in owners[1::2] + owners[::2]]),
        )
        assert renewed <= {o.id for o in owners}
        assert settled | kept == {o.id for o in owners}
        assert not settled & kept
    await heartbeat.close()


async def test_refused_content_of_an_outcome(store: Store) -> None:
    """An outcome that breaks a rule of the schema is refused as data, not as an outage."""
    owner = await claimed(store)
    with pytest.raises(BadData):
        await store.settle([Outcome(owner.id, owner.claim, "fail", reason=None)])
    with pytest.raises(BadData):
        await store.settle([Outcome(owner.id, owner.claim, "complete", result="\ud800")])
    assert (await event(store, owner.id)).state is State.PROCESSING
    assert await settle(store, owner, "complete")


async def test_an_outcome_that_the_database_refuses_in_every_form_waits(
    postgres_url: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """As a later release's constraint may: the worker says so once, and tries until it is stopped or allowed."""
    store = connect(postgres_url, clock=clock)
    await store.open()
    raw = Raw(store)
    await raw.run(
        "ALTER TABLE events ADD CONSTRAINT no_end CHECK (state NOT IN ('processed', 'needs_review')) NOT VALID"
    )
    owner = await claimed(store)
    tried = asyncio.Queue[None]()
    settles = store.settle

    async def counted(outcomes: Sequence[Outcome]) -> set[UUID]:
        tried.put_nowait(None)
        return await settles(outcomes)

    store.settle = counted  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        settling = asyncio.create_task(Settler(store, WorkCounts()).settle(way_out(owner, "complete")))
        for _ in range(8):  # a batch of one is tried once more alone
            await tried.get()
        assert not settling.done()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    await raw.run("ALTER TABLE events DROP CONSTRAINT no_end")
    await settling
    row = await event(store, owner.id)
    assert (row.state, row.reason) == (State.NEEDS_REVIEW, UNSTORABLE)
    await store.close()
