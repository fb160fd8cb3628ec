"""The outbox: due entries are taken by one worker each, in the order of their lane."""

from __future__ import annotations

import asyncio

import pytest

from hookledger.clock import Clock
from hookledger.ledger import Effect
from hookledger.states import EffectState
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claimed
from tests.contract.conftest import OpenStore
from tests.ledger import LATER, calls, finish, get, intent, plan, reach, take


def keys(effects: list[Effect]) -> list[str]:
    return [effect.key for effect in effects]


async def test_a_planned_entry_is_taken_and_counted(store: Store) -> None:
    owner = await claimed(store)
    [identity] = await plan(store, owner, "k", arguments=b'{"to":"x"}')
    planned = await get(store, identity)
    assert (planned.state, planned.fence, planned.number, planned.tries) == (EffectState.PLANNED, 0, 0, 0)
    assert planned.unknown_for is None
    [taken] = await store.ledger.claim("w7", [("charge", 5, 30.0)])
    assert (taken.state, taken.fence, taken.number, taken.tries) == (EffectState.STARTED, 1, 1, 1)
    assert (taken.worker, taken.due_at, taken.arguments, taken.kind) == ("w7", None, b'{"to":"x"}', LATER)
    assert 25 < taken.lease_left <= 30
    assert taken.unknown_for is None, "about calls before this one"
    assert not taken.expired
    assert await calls(store, taken) == [(1, None)]
    assert await take(store) == []


async def test_what_a_rolled_back_handler_planned_is_not_there(store: Store) -> None:
    owner = await claimed(store)
    transaction = store.transaction()
    assert await transaction.plan(intent(owner, kind=LATER)) is None
    await transaction.rollback()
    assert await take(store) == []
    assert await store.ledger.due(["charge"]) == set()


async def test_each_name_has_its_own_limit_and_lease(store: Store) -> None:
    owner = await claimed(store)
    for name in ("mail", "charge", "task"):
        await plan(store, owner, *(f"{n}" for n in range(5)), name=name)
    assert await store.ledger.due(["mail", "task", "nothing"]) == {"mail", "task"}
    taken = await store.ledger.claim(WORKER, [("mail", 2, 10.0), ("charge", 3, 100.0), ("nothing", 5, 1.0)])
    assert sorted((e.name, e.lease_left > 50) for e in taken) == [
        *[("charge", True)] * 3,
        *[("mail", False)] * 2,
    ]
    assert len(await take(store, "mail", 10)) == 3
    assert await store.ledger.due(["mail", "charge", "task"]) == {"charge", "task"}


async def test_only_what_is_due_the_longest_due_first(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await plan(store, owner, "late")
    [late] = await take(store)
    await finish(store, late.identity, 1, "refused", due_in=100.0)
    clock.offset += 1
    await plan(store, owner, "first")
    clock.offset += 1
    await plan(store, owner, "second")
    assert keys(await take(store, most=1)) == ["first"]
    assert keys(await take(store, most=5)) == ["second"]
    assert await store.ledger.due(["charge"]) == set()
    clock.offset += 99
    assert await store.ledger.due(["charge"]) == {"charge"}
    assert keys(await take(store, most=5)) == ["late"]


async def test_an_unknown_entry_comes_leased_to_be_looked_at(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.STARTED, LATER)
    await finish(store, known.identity, 1, "unknown", due_in=10.0)
    assert await take(store) == []
    clock.offset += 11
    [leased] = await take(store, worker="w2")
    assert (leased.state, leased.number, leased.tries, leased.worker) == (EffectState.UNKNOWN, 1, 1, "w2")
    assert leased.unknown_for is not None
    assert leased.unknown_for >= 11
    assert leased.lease_left > LEASE - 5
    assert await take(store) == []
    assert await calls(store, leased) == [(1, "unknown")]
    started = await store.ledger.restart(leased, "w2", LEASE)
    assert started is not None
    assert (started.number, started.fence) == (2, leased.fence + 1)
    assert await calls(store, leased) == [(1, "unknown"), (2, None)]


@pytest.mark.parametrize("state", sorted(set(EffectState) - {EffectState.PLANNED}))
async def test_nothing_else_is_taken(store: Store, clock: Clock, state: EffectState) -> None:
    await reach(store, clock, await claimed(store), state, LATER)
    clock.offset += 1000
    assert await take(store) == []


# proves R29
async def test_two_stores_never_get_the_same(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    owner = await claimed(store)
    await plan(store, owner, *(f"{n}" for n in range(60)))
    got: list[Effect] = []
    while len(got) < 60:
        answers = await asyncio.gather(*(take(stores[n % 2], most=4, worker=f"w{n}") for n in range(10)))
        assert all(len(answer) <= 4 for answer in answers)
        assert any(answers)
        got += [effect for answer in answers for effect in answer]
    assert len({effect.identity for effect in got}) == 60
    assert await raw.count("effect_calls") == 60
    for n, effect in enumerate(got[:10]):
        assert (await get(stores[n % 2], effect.identity)).worker == effect.worker


# ── lanes ────────────────────────────────────────────────────────────────────


async def test_a_lane_is_walked_in_order(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await plan(store, owner, "a1", "a2", "a3", lane="a")
    await plan(store, owner, "b1", lane="b")
    await plan(store, owner, "free")
    assert sorted(keys(await take(store, most=10))) == ["a1", "b1", "free"]
    assert await take(store, most=10) == []
    a1 = intent(owner, "a1").identity
    # Refused and waiting, unknown, failed: none of them is over, and nobody passes.
    await finish(store, a1, 1, "refused", due_in=50.0)
    assert await take(store, most=10) == []
    clock.offset += 51
    assert keys(await take(store, most=10)) == ["a1"]
    await finish(store, a1, 2, "unknown")
    assert await take(store, most=10) == []
    await store.ledger.resolve(await get(store, a1), "happened", None, "ada", "looked")
    assert keys(await take(store, most=10)) == ["a2"]
    a2 = intent(owner, "a2").identity
    await finish(store, a2, 1, "refused")
    assert await take(store, most=10) == []
    await store.ledger.resolve(await get(store, a2), "cancel", None, "ada", "not needed")
    assert keys(await take(store, most=10)) == ["a3"]


async def test_a_stuck_lane_stops_no_other(store: Store) -> None:
    owner = await claimed(store)
    for lane in ("", "a", "b", "z"):
        await plan(store, owner, *(f"{lane}{n}" for n in range(20)), lane=lane)
    stuck = await take(store, most=2)
    assert len(stuck) == 2
    for effect in stuck:
        await finish(store, effect.identity, 1, "refused")
    others = {"", "a", "b", "z"} - {effect.lane for effect in stuck}
    for n in range(20):
        taken = await take(store, most=5)
        assert {(effect.lane, effect.key) for effect in taken} == {(lane, f"{lane}{n}") for lane in others}
        for effect in taken:
            await finish(store, effect.identity, 1, "done")
    assert await store.ledger.due(["charge"]) == set(), "what is left waits behind the stuck ones"


async def test_lanes_take_turns(store: Store) -> None:
    """A lane that always has something due does not starve the ones behind it in the alphabet."""
    owner = await claimed(store)
    for lane in "abcd":
        await plan(store, owner, *(f"{lane}{n}" for n in range(3)), lane=lane)
    order = []
    for _ in range(12):
        [effect] = await take(store)
        order.append(effect.key)
        await finish(store, effect.identity, 1, "done")
    assert order == [f"{lane}{n}" for n in range(3) for lane in "abcd"]
    assert await take(store) == []


async def test_lanes_and_others_share_the_limit(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await plan(store, owner, "free1", "free2")
    clock.offset += 1
    await plan(store, owner, "a1", lane="a")
    clock.offset += 1
    await plan(store, owner, "free3")
    assert sorted(keys(await take(store, most=3))) == ["a1", "free1", "free2"]
    assert keys(await take(store, most=3)) == ["free3"]


async def test_a_lane_belongs_to_one_name(store: Store) -> None:
    owner = await claimed(store)
    await plan(store, owner, "1", name="mail", lane="x")
    await plan(store, owner, "1", "2", name="charge", lane="x")
    taken = await store.ledger.claim(WORKER, [("mail", 9, LEASE), ("charge", 9, LEASE)])
    assert sorted((e.name, e.key, e.lane) for e in taken) == [("charge", "1", "x"), ("mail", "1", "x")]


async def test_a_lane_is_never_in_two_hands(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    owner = await claimed(store)
    for lane in ("x", "y"):
        await plan(store, owner, *(f"{lane}{n}" for n in range(8)), lane=lane)
    seen: dict[str, list[str]] = {"x": [], "y": []}
    held: set[str] = set()

    async def work(store: Store, worker: str) -> None:
        while min(len(s) for s in seen.values()) < 8:
            for effect in await take(store, most=2, worker=worker):
                assert effect.lane is not None
                assert effect.lane not in held
                held.add(effect.lane)
                seen[effect.lane].append(effect.key)
                await asyncio.sleep(0)
                held.discard(effect.lane)
                await finish(store, effect.identity, effect.number, "done")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(work(stores[n % 2], f"w{n}"))
    assert seen == {lane: [f"{lane}{n}" for n in range(8)] for lane in ("x", "y")}
