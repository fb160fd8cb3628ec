"""Replay and discard: one audited transition each, and whoever loses a race is told what changed."""

from __future__ import annotations

import asyncio

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import new_id
from hookledger.states import BY_NAME, State
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, WORKER, Raw, claim, crash, event, history, reach, recorded, settle
from tests.contract.conftest import OpenStore


async def whole(raw: Raw) -> list[object]:
    return [await raw.all(table) for table in ("events", "effects", "effect_calls", "actions", "attempts")]


# ── replay ───────────────────────────────────────────────────────────────────


# proves R43, R44, R63
@pytest.mark.parametrize("state", sorted(BY_NAME["replay"].sources))
async def test_replay_is_a_new_run_of_the_same_event(store: Store, raw: Raw, clock: Clock, state: State) -> None:
    before = await reach(store, state, KIND)
    deliveries = await raw.all("deliveries")
    already = len((await history(store, before.id)).actions)
    if state in (State.FAILED, State.NEEDS_REVIEW):
        await raw.run(f"UPDATE events SET alert = 'look', crashes = 3 WHERE id = {raw.ident(before.id)}")
    clock.offset += 100
    assert await store.replay(before.id, state, "ada", "the handler was wrong", seen=before.claim) == 2
    found = await history(store, before.id)
    row = found.event
    assert (row.state, row.claim, row.run) == (State.PENDING, before.claim + 1, 2)
    assert (row.attempts, row.snoozes, row.reason, row.alert, row.finished_at) == (0, 0, None, None, None)
    assert row.crashes == (2 if state in (State.FAILED, State.NEEDS_REVIEW) else 0), "what killed workers runs alone"
    assert (row.first_processed_at, row.received_at) == (before.first_processed_at, before.received_at)
    [action] = found.actions[already:]
    assert (action.name, action.actor, action.reason, action.subject) == (
        *("replay", "ada", "the handler was wrong"),
        "run 2",
    )
    assert (action.from_state, action.to_state) == (state, State.PENDING)
    assert (await raw.all("deliveries"), await raw.count("events")) == (deliveries, 1), "it is no new event"
    claim_it = store.claim_alone("w", [KIND], LEASE) if row.crashes else store.claim("w", [KIND], 1, LEASE)
    [owner] = await claim_it
    assert (owner.attempts, owner.run, owner.run_age < 60) == (1, 2, True)
    assert await settle(store, owner, "complete")
    assert [a.run for a in (await history(store, before.id)).attempts] == [1, 2]


@pytest.mark.parametrize("state", sorted(set(State) - BY_NAME["replay"].sources))
async def test_replay_is_refused_from_other_states(store: Store, raw: Raw, state: State) -> None:
    row = await reach(store, state, KIND)
    before = await whole(raw)
    with pytest.raises(WrongState, match=f"is {state}: only .*processed.* can be replayed"):
        await store.replay(row.id, state, "ada", "please")
    assert await whole(raw) == before


async def test_two_operators_one_is_told_what_changed(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    row = await reach(store, State.PROCESSED, KIND)
    await store.replay(row.id, State.PROCESSED, "ada", "finance asked", seen=row.claim)
    with pytest.raises(WrongState) as told:
        await other.replay(row.id, State.PROCESSED, "bob", "support asked", seen=row.claim)
    for words in ("is pending now, in run 2", "no longer processed", "replay by ada at", "(finance asked)"):
        assert words in str(told.value)
    with pytest.raises(WrongState, match=r"is pending now.*replay by ada"):
        await other.discard(row.id, State.FAILED, "bob", "close it")
    with pytest.raises(WrongState, match="there is no event"):
        await store.replay(new_id(), State.PROCESSED, "bob", "?")


async def test_an_event_that_was_processed_since_is_not_replayed(store: Store, raw: Raw) -> None:
    """It is in the state that the operator saw, and yet another event than the one that was looked at."""
    row = await reach(store, State.PROCESSED, KIND)
    await store.replay(row.id, State.PROCESSED, "ada", "finance asked", seen=row.claim)
    assert await settle(store, await claim(store), "complete")
    before = await whole(raw)
    with pytest.raises(WrongState, match=r"is processed again now, in run 2.*replay by ada"):
        await store.replay(row.id, State.PROCESSED, "bob", "support asked", seen=row.claim)
    assert await whole(raw) == before


@pytest.mark.parametrize("name", ["replay", "discard"])
async def test_racing_operators_one_wins(store: Store, open_store: OpenStore, name: str) -> None:
    stores = [store, await open_store()]
    row = await reach(store, State.FAILED, KIND)

    async def act(n: int) -> None:
        method = getattr(stores[n % 2], name)
        await method(row.id, State.FAILED, f"op{n}", "now", seen=row.claim)

    results = await asyncio.gather(*map(act, range(8)), return_exceptions=True)
    [action] = (await history(store, row.id)).actions
    losers = [result for result in results if isinstance(result, WrongState)]
    assert len(losers) == 7
    assert all(f"{name} by {action.actor}" in str(loser) for loser in losers)
    assert results[int(action.actor[2:])] is None
    assert (await event(store, row.id)).run == (2 if name == "replay" else 1)


async def test_an_operator_races_a_worker(store: Store, open_store: OpenStore) -> None:
    """Either the worker has the event, or the operator closed it: never both."""
    other = await open_store()
    for n in range(10):
        ident = await recorded(store, f"evt_{n}")
        taken, closed = await asyncio.gather(
            store.claim(WORKER, [KIND], 1, LEASE),
            other.discard(ident, State.PENDING, "ada", "a test"),
            return_exceptions=True,
        )
        assert isinstance(taken, list)
        assert bool(taken) is isinstance(closed, WrongState)
        if taken:
            assert await settle(store, taken[0], "complete")


@pytest.mark.parametrize("name", ["replay", "discard"])
async def test_both_need_an_actor_and_a_reason(store: Store, raw: Raw, name: str) -> None:
    row = await reach(store, State.FAILED, KIND)
    before = await whole(raw)
    for actor, reason in (("", "why"), ("ada", ""), ("ada", "\ud800")):
        with pytest.raises(BadData):
            await getattr(store, name)(row.id, State.FAILED, actor, reason)
    assert await whole(raw) == before


async def test_a_late_worker_of_the_run_before_changes_nothing(store: Store, clock: Clock) -> None:
    ident = await recorded(store)
    frozen = await crash(store, clock, due_in=None)
    await store.replay(ident, State.FAILED, "ada", "again")
    assert not await settle(store, frozen, "complete")
    owner = await claim(store)
    assert not await settle(store, frozen, "fail")
    assert await settle(store, owner, "complete")
    assert (await event(store, ident)).state is State.PROCESSED


# ── discard ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(BY_NAME["discard"].sources))
async def test_discard_closes_with_a_reason(store: Store, raw: Raw, state: State) -> None:
    before = await reach(store, state, KIND)
    await raw.run(f"UPDATE events SET alert = 'look' WHERE id = {raw.ident(before.id)}")
    await store.discard(before.id, state, "ada", "a test event")
    found = await history(store, before.id)
    row = found.event
    assert (row.state, row.reason, row.alert, row.due_at) == (State.DISCARDED, "a test event", None, None)
    assert (row.claim, row.run, row.finished_at is None) == (before.claim + 1, before.run, False)
    [action] = found.actions
    assert (action.name, action.actor, action.reason, action.subject) == ("discard", "ada", "a test event", None)
    assert (action.from_state, action.to_state) == (state, State.DISCARDED)
    assert await store.claim("w", [KIND], 1, LEASE) == []
    assert await store.replay(before.id, State.DISCARDED, "ada", "after all") == 2, "and can be taken back"
