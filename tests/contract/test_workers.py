"""Who lives and what they handle; what nobody handles."""

from __future__ import annotations

from hookledger.clock import Clock
from hookledger.model import Kind, Pattern
from hookledger.operate.context import Context
from hookledger.operate.workers import workers
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, claim, claimed, delivered, event, record, recorded, settle


async def test_register_and_list(store: Store, clock: Clock) -> None:
    assert await store.workers() == []
    await store.register("a", [("stripe", "invoice.*"), ("github", "push")])
    clock.offset += 10
    await store.register("b", [])
    seen = {w.id: w for w in await store.workers()}
    assert seen["a"].handles == (Pattern("stripe", "invoice.*"), Pattern("github", "push"))
    assert seen["b"].handles == ()
    assert 10 <= seen["a"].seen_ago < 70
    assert 0 <= seen["b"].seen_ago < 60


async def test_registering_again_replaces(store: Store, clock: Clock) -> None:
    await store.register("a", [("stripe", "x")])
    clock.offset += 100
    await store.register("a", [("stripe", "y")])
    [worker] = await store.workers()
    assert worker.handles == (Pattern("stripe", "y"),)
    assert worker.seen_ago < 60


async def test_a_beat_shows_that_the_worker_lives(store: Store, clock: Clock) -> None:
    await store.register("a", [])
    await store.register("b", [])
    clock.offset += 100
    heartbeat = await store.heartbeat("a", [], 5.0)
    await heartbeat.beat([], LEASE)
    await heartbeat.beat([], LEASE)
    await heartbeat.close()
    seen = {w.id: w.seen_ago for w in await store.workers()}
    assert seen.keys() == {"a", "b"}
    assert seen["a"] < 60 < seen["b"]


async def test_a_forgotten_worker_is_known_again_with_its_next_beat(store: Store, clock: Clock) -> None:
    """One that was frozen for long must not find its events skipped as unhandled."""
    heartbeat = await store.heartbeat("a", [("stripe", "invoice.*")], 5.0)
    await heartbeat.beat([], LEASE)
    clock.offset += 100
    await store.forget_workers(50.0)
    assert await store.workers() == []
    await heartbeat.beat([], LEASE)
    await heartbeat.close()
    [worker] = await store.workers()
    assert (worker.id, worker.handles) == ("a", (Pattern("stripe", "invoice.*"),))


async def test_a_worker_that_stopped_is_unregistered_immediately(store: Store) -> None:
    """What it handled stays known: while a deploy replaces it, its events must not be skipped as unhandled."""
    await store.register("a", [("stripe", "invoice.*")])
    await store.register("b", [])
    await store.leave("a")
    seen = {worker.id: worker for worker in await store.workers()}
    assert (seen["a"].left, seen["a"].alive(LEASE), seen["a"].handles) == (
        True,
        False,
        (Pattern("stripe", "invoice.*"),),
    )
    assert (seen["b"].left, seen["b"].alive(LEASE)) == (False, True)
    assert [worker.id for worker in await workers(Context(store))] == ["b"]
    await store.register("a", [])
    assert {worker.id for worker in await workers(Context(store))} == {"a", "b"}
    await store.leave("nobody")


async def test_forget_workers(store: Store, clock: Clock) -> None:
    await store.register("old", [])
    clock.offset += 100
    await store.register("new", [])
    await store.forget_workers(200.0)
    assert len(await store.workers()) == 2
    await store.forget_workers(50.0)
    assert [w.id for w in await store.workers()] == ["new"]


async def test_skip_unhandled(store: Store, clock: Clock) -> None:
    old = await recorded(store, "old")
    other = await recorded(store, "other", type="other")
    clock.offset += 100
    young = await recorded(store, "young")
    assert await store.skip_unhandled(KIND, 200.0, 10) == 0
    assert await store.skip_unhandled(Kind("github", KIND.type), 50.0, 10) == 0
    assert await store.skip_unhandled(KIND, 50.0, 10) == 1
    row = await event(store, old)
    assert (row.state, row.reason, row.due_at) == (State.SKIPPED, "no handler", None)
    assert row.finished_at is not None
    assert (await event(store, other)).state is State.PENDING
    assert (await event(store, young)).state is State.PENDING


async def test_skip_unhandled_is_bounded(store: Store, clock: Clock) -> None:
    await record(store, *(delivered(f"evt_{n}") for n in range(10)))
    clock.offset += 100
    assert [await store.skip_unhandled(KIND, 50.0, 4) for _ in range(4)] == [4, 4, 2, 0]


async def test_skip_unhandled_leaves_what_is_in_work_or_retrying(store: Store, clock: Clock) -> None:
    retrying = await claimed(store, "retrying")
    await settle(store, retrying, "reschedule")
    clock.offset += 100
    assert await store.skip_unhandled(KIND, 50.0, 10) == 0
    owner = await claim(store)
    clock.offset += 100
    assert await store.skip_unhandled(KIND, 50.0, 10) == 0
    assert await settle(store, owner, "complete")
