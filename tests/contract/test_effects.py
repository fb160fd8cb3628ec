"""The effect ledger: what was started is on record before the call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import msgspec
import pytest

from hookledger.batching import retry_individually
from hookledger.clock import Clock
from hookledger.errors import BadData, Blocked, Unavailable
from hookledger.ids import effect_identity, new_id
from hookledger.ledger import Completion, Concluded, Effect, Intent, Started
from hookledger.states import CallOutcome, EffectKind, EffectState, Repeat
from hookledger.store.connect import connect
from hookledger.store.postgres import ledger
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claimed, event, history, settle
from tests.contract.conftest import OpenStore
from tests.ledger import CALL, LATER, calls, finish, get, intent, plan, reach, start, take

DONE, REFUSED = CallOutcome.DONE, CallOutcome.REFUSED


# ── start ────────────────────────────────────────────────────────────────────


async def test_start_is_on_record_before_the_call(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    asked = intent(owner, "inv_1", arguments=b'{"to":"a\\u0000"}', repeat=Repeat.KEYED)
    assert await store.ledger.start([asked], "w7") == [Started(asked.identity, 1, 1, 1)]
    known = await get(store, asked.identity)
    for name in ("kind", "source", "name", "key", "event_id", "claim", "arguments", "arguments_digest", "repeat"):
        assert getattr(known, name) == getattr(asked, name)
    assert (known.downstream, known.lane) == ("bank", None)
    assert known.state is EffectState.STARTED
    assert (known.generation, known.fence, known.number, known.tries) == (1, 1, 1, 1)
    assert (known.worker, known.due_at, known.finished_at, known.result) == ("w7", None, None, None)
    assert (known.error, known.alert, known.expired) == (None, None, False)
    assert LEASE - 5 < known.lease_left <= LEASE
    assert known.unknown_for is not None
    assert 0 <= known.unknown_for < 5
    assert 0 <= known.age < 5
    [told] = (await history(store, owner.id)).effects
    [call] = told.calls
    assert (call.number, call.generation, call.worker, call.ended_at, call.outcome) == (1, 1, "w7", None, None)
    clock.offset += LEASE + 1
    known = await get(store, asked.identity)
    assert (known.expired, known.lease_left) == (True, 0.0)
    assert known.unknown_for is not None
    assert known.age >= LEASE
    assert known.unknown_for >= LEASE


async def test_get_of_nothing(store: Store) -> None:
    assert await store.ledger.get(bytes(32)) is None
    assert await store.ledger.start([], WORKER) == []
    assert await store.ledger.finish([]) == []
    assert await store.ledger.claim(WORKER, []) == []


@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("state", list(EffectState))
async def test_start_of_what_is_known(
    store: Store, clock: Clock, raw: Raw, state: EffectState, kind: EffectKind
) -> None:
    if state is EffectState.CANCELLED and kind is CALL:
        return  # a handler's own call cannot be cancelled
    owner = await claimed(store)
    known = await reach(store, clock, owner, state, kind)
    before = await raw.all("effects"), await raw.all("effect_calls")
    [found] = await store.ledger.start([intent(owner)], "other")
    assert isinstance(found, Effect)
    assert _still(found) == _still(known)
    assert (await raw.all("effects"), await raw.all("effect_calls")) == before


def _still(effect: Effect) -> Effect:
    """Without what the clock makes of it."""
    return msgspec.structs.replace(effect, lease_left=0.0, unknown_for=None, age=0.0)


async def test_start_of_once(store: Store) -> None:
    owner = await claimed(store)
    transaction = store.transaction()
    assert await transaction.once(intent(owner, kind=EffectKind.ONCE, repeat=None, downstream=""))
    await transaction.commit([])
    [found] = await store.ledger.start([intent(owner)], WORKER)
    assert isinstance(found, Effect)
    assert (found.kind, found.state, found.repeat) == (EffectKind.ONCE, EffectState.DONE, None)


async def test_start_answers_in_the_order_asked(store: Store) -> None:
    owner = await claimed(store)
    known = await start(store, owner, "known")
    await finish(store, known.identity, 1, "done", result=b"5")
    lost = await claimed(store, "evt_2")
    await settle(store, lost, "release")
    a, b, c = intent(owner, "a"), intent(owner, "b"), intent(lost, "c")
    twin = msgspec.structs.replace(a, arguments_digest=b"another")
    asked = [b, intent(owner, "known"), c, a, twin, b, intent(lost, "known")]
    got = await store.ledger.start(asked, WORKER)
    assert got[0] == Started(b.identity, 1, 1, 1)
    assert got[3] == Started(a.identity, 1, 1, 1)
    assert got[2] is None
    for place, state in ((1, "done"), (4, "started"), (5, "started"), (6, "done")):
        found = got[place]
        assert isinstance(found, Effect)
        assert (found.identity, found.state) == (asked[place].identity, state)
    found = got[4]
    assert isinstance(found, Effect)
    assert found.arguments_digest == b"digest", "the first of the batch won"
    assert await store.ledger.get(c.identity) is None


async def test_the_first_that_asks_has_lost_its_claim(store: Store) -> None:
    owner = await claimed(store)
    stale = msgspec.structs.replace(owner, claim=owner.claim - 1)
    asked = [intent(stale), intent(stale, "b"), intent(stale), intent(owner), intent(owner), intent(stale)]
    got = await store.ledger.start(asked, WORKER)
    assert got[3] == Started(asked[3].identity, 1, 1, 1)
    assert got[1] is None
    assert [type(found) for found in (got[4], got[5])] == [Effect, Effect]
    assert all(found is None or isinstance(found, Effect) for found in (got[0], got[2]))
    assert (await get(store, asked[3].identity)).claim == owner.claim


async def test_a_row_that_a_handler_holds_blocks_no_other(store: Store) -> None:
    owner = await claimed(store)
    transaction = store.transaction()
    assert await transaction.plan(intent(owner, "held", kind=LATER)) is None
    if transaction.exclusive:  # on SQLite nobody writes meanwhile, and nobody waits for one row
        await transaction.rollback()
        return

    async def start_all(intents: Sequence[Intent]) -> Sequence[Started | Effect | None]:
        return await store.ledger.start(intents, WORKER)

    a, held, b = await retry_individually(start_all)([intent(owner, "a"), intent(owner, "held"), intent(owner, "b")])
    assert isinstance(a, Started)
    assert isinstance(b, Started)
    assert isinstance(held, Blocked)
    await transaction.commit([])
    [found] = await store.ledger.start([intent(owner, "held")], WORKER)
    assert isinstance(found, Effect)
    assert found.state is EffectState.PLANNED


# proves R18
async def test_nothing_is_started_for_a_claim_that_is_lost(store: Store, clock: Clock, raw: Raw) -> None:
    """A worker that lost its event makes no new call."""
    owner = await claimed(store)
    stale = msgspec.structs.replace(owner, claim=owner.claim - 1)
    nobody = msgspec.structs.replace(owner, id=new_id())
    assert await store.ledger.start([intent(stale, "a"), intent(nobody, "b")], WORKER) == [None, None]
    await settle(store, owner, "complete")
    assert await store.ledger.start([intent(owner, "c")], WORKER) == [None]
    assert await raw.count("effects") == 0
    assert await raw.count("effect_calls") == 0


# proves R28
async def test_twenty_start_the_same_one_may(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    owner = await claimed(store)
    for n in range(5):
        asked = [intent(owner, f"{n}-{k}") for k in range(3)]
        got = await asyncio.gather(
            *(stores[t % 2].ledger.start(asked if t % 3 else asked[::-1], f"w{t}") for t in range(20))
        )
        winners = [found for answer in got for found in answer if isinstance(found, Started)]
        assert sorted(w.identity for w in winners) == sorted(i.identity for i in asked)
        others = [found for answer in got for found in answer if isinstance(found, Effect)]
        assert len(others) == 57
        assert {o.state for o in others} == {EffectState.STARTED}
    assert await raw.count("effect_calls") == 15


def _hostile(asked: Intent) -> dict[str, Intent]:
    replace = msgspec.structs.replace
    return {
        "key too long": replace(asked, key="x" * 256),
        "no key": replace(asked, key=""),
        "identity not a digest": replace(asked, identity=b"short"),
        "lone surrogate": replace(asked, key="\ud800"),
        "endless lease": replace(asked, lease=1e300),
        "no policy": replace(asked, repeat=None),
    }


@pytest.mark.parametrize("poison", list(_hostile(Intent(b"", CALL, "", "", "", new_id(), 0))))
async def test_what_no_column_can_hold_is_refused_alone(store: Store, raw: Raw, poison: str) -> None:
    owner = await claimed(store)
    bad = _hostile(intent(owner, "bad"))[poison]
    batch = [intent(owner, "a"), bad, intent(owner, "b")]
    with pytest.raises(BadData):
        await store.ledger.start(batch, WORKER)
    assert await raw.count("effects") == 0

    async def flush(intents: Sequence[Intent]) -> Sequence[Started | Effect | None]:
        return await store.ledger.start(intents, WORKER)

    first, second, third = await retry_individually(flush)(batch)
    assert isinstance(first, Started)
    assert isinstance(second, BadData)
    assert isinstance(third, Started)


async def test_how_a_call_ended_that_no_column_can_hold(store: Store) -> None:
    owner = await claimed(store)
    idents = [(await start(store, owner, key)).identity for key in "abc"]
    ends = [
        Completion(idents[0], 1, DONE),
        Completion(idents[1], 1, REFUSED, error="\ud800"),
        Completion(idents[2], 1, DONE, error="\ud800"),
    ]
    with pytest.raises(BadData):
        await store.ledger.finish(ends)
    first, *others = await retry_individually(store.ledger.finish)(ends)
    assert first == Concluded(EffectState.DONE)
    assert [type(other) for other in others] == [BadData, BadData]
    assert (await get(store, idents[2])).state is EffectState.STARTED


# ── restart ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("state", list(EffectState))
async def test_restart(store: Store, clock: Clock, raw: Raw, state: EffectState, kind: EffectKind) -> None:
    """Only what is not under way and not over, and only by whoever saw it as it is."""
    if state is EffectState.CANCELLED and kind is CALL:
        return
    owner = await claimed(store)
    known = await reach(store, clock, owner, state, kind)
    stale = msgspec.structs.replace(known, fence=known.fence - 1)
    before = await raw.all("effects"), await raw.all("effect_calls")
    assert await store.ledger.restart(stale, "w2", LEASE) is None
    allowed = state in (EffectState.FAILED, EffectState.UNKNOWN) or (state is EffectState.PLANNED and kind is CALL)
    started = await store.ledger.restart(known, "w2", LEASE)
    if not allowed:
        assert started is None
        assert (await raw.all("effects"), await raw.all("effect_calls")) == before
        return
    assert started == Started(known.identity, known.fence + 1, 2, 1)
    after = await get(store, known.identity)
    assert (after.state, after.fence, after.number, after.worker) == (EffectState.STARTED, started.fence, 2, "w2")
    assert (after.tries, after.due_at) == (known.tries + 1, None)
    assert after.lease_left > LEASE - 5
    assert (await calls(store, after))[1] == (2, None)
    assert not (await event(store, owner.id)).attention
    assert await store.ledger.restart(known, "w3", LEASE) is None


async def test_racing_restarts_one_wins(store: Store, open_store: OpenStore, clock: Clock) -> None:
    stores = [store, await open_store()]
    known = await reach(store, clock, await claimed(store), EffectState.UNKNOWN, CALL)
    got = await asyncio.gather(*(stores[n % 2].ledger.restart(known, f"w{n}", LEASE) for n in range(20)))
    [winner] = [started for started in got if started is not None]
    after = await get(store, known.identity)
    assert (after.worker, after.fence, after.number) == (f"w{got.index(winner)}", known.fence + 1, 2)


async def test_what_a_worker_holds(store: Store, clock: Clock) -> None:
    """Whether it knows or not: the answer to its start, restart or claim may have been lost."""
    owner = await claimed(store)
    first = await start(store, owner, "a")
    known = await reach(store, clock, owner, EffectState.FAILED, CALL, "b")
    await store.ledger.restart(known, "other", LEASE)
    [planned] = await plan(store, owner, "c")
    await take(store)
    ended = await start(store, owner, "d")
    await finish(store, ended.identity, 1, "done")
    assert {e.identity for e in await store.ledger.held(WORKER)} == {first.identity, planned}
    assert [(e.identity, e.number) for e in await store.ledger.held("other")] == [(known.identity, 2)]
    assert await store.ledger.held("nobody") == []


# ── the handler's own transaction ────────────────────────────────────────────


async def test_start_waits_for_a_handler_that_plans_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = ledger.QUERIES["start"].replace("500ms", "60s")  # a busy machine may take longer until the commit
    monkeypatch.setitem(ledger.QUERIES, "start", patient)
    owner = await claimed(store)
    transaction = store.transaction()
    assert await transaction.plan(intent(owner, kind=LATER)) is None
    started = asyncio.create_task(store.ledger.start([intent(owner)], WORKER))
    await asyncio.sleep(0.1)
    assert not started.done()
    await transaction.commit([])
    [found] = await started
    assert isinstance(found, Effect)
    assert (found.kind, found.state) == (LATER, EffectState.PLANNED)


async def test_no_caller_waits_long_for_a_handler(postgres_url: str) -> None:
    """PostgreSQL only: on SQLite the handler's transaction has a hard limit itself."""
    clock = Clock()
    store = connect(postgres_url, clock=clock)
    await store.open(handlers=2)
    await store.migrate()
    try:
        owner = await claimed(store)
        known = await reach(store, clock, owner, EffectState.FAILED, CALL, "known")
        transaction = store.transaction()
        assert await transaction.plan(intent(owner, kind=LATER)) is None
        assert await transaction.plan(intent(owner, "known", kind=LATER)) is None
        with pytest.raises(Blocked):
            await asyncio.wait_for(store.ledger.start([intent(owner), intent(owner, "other")], WORKER), 60)
        assert await store.ledger.get(effect_identity(owner.source, "charge", "other")) is None
        with pytest.raises(Unavailable):
            await asyncio.wait_for(store.ledger.restart(known, WORKER, LEASE), 60)
        await transaction.rollback()
        [found] = await store.ledger.start([intent(owner)], WORKER)
        assert isinstance(found, Started)
        assert await store.ledger.restart(known, WORKER, LEASE) is not None
    finally:
        await store.close()


async def test_a_state_that_is_just_changing_is_waited_for(postgres_url: str) -> None:
    """PostgreSQL only: on SQLite nobody changes anything beside a writer. An event on its way into review asks, so
    that of the two, its handler and the call's end, at least one sees the other.
    """
    clock = Clock()
    store = connect(postgres_url, clock=clock)
    await store.open(handlers=2)
    await store.migrate()
    other = await asyncpg.connect(postgres_url)
    try:
        owner = await claimed(store)
        known = await reach(store, clock, owner, EffectState.UNKNOWN, CALL)
        changing = other.transaction()
        await changing.start()
        change = "UPDATE hookledger.effects SET state = 'done', finished_at = now() WHERE identity = $1"
        await other.execute(change, known.identity)
        asked = asyncio.create_task(store.ledger.state_of(known.identity))
        await asyncio.sleep(0.2)
        assert not asked.done()
        await changing.commit()
        assert await asked is EffectState.DONE
        assert await store.ledger.state_of(bytes(32)) is None
    finally:
        await other.close()
        await store.close()


@pytest.mark.parametrize("handlers", [0, 1])
async def test_behind_a_transaction_pooler(postgres_url: str, handlers: int) -> None:
    """PostgreSQL only; and without handlers, as a command does it: on the general connections."""
    clock = Clock()
    store = connect(postgres_url, clock=clock, pooler=True)
    await store.open(handlers=handlers)
    await store.migrate()
    try:
        owner = await claimed(store)
        known = await reach(store, clock, owner, EffectState.UNKNOWN, CALL, "a")
        await store.ledger.restart(known, WORKER, LEASE)
        await finish(store, known.identity, 2, "refused")
        assert (await get(store, known.identity)).state is EffectState.UNKNOWN
        second = await start(store, owner, "b")
        await finish(store, second.identity, 1, "done")
        clock.offset += LEASE + 1
        assert await store.ledger.expired(5) == []
        await store.circuits.fail("bank", 1, 5.0, "down")
        assert len(await store.circuits.all()) == 1
        await store.ledger.resolve(await get(store, known.identity), "happened", None, "ada", "looked")
        assert [e.effect.state for e in (await history(store, owner.id)).effects] == [EffectState.DONE] * 2
    finally:
        await store.close()
