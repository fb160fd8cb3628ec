"""The effect ledger: how a call ended is always on record, also when nobody lived to tell, or told late."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.ledger import Completion, Concluded
from hookledger.states import CallOutcome, EffectKind, EffectState, Repeat
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claimed, event, history
from tests.contract.conftest import OpenStore
from tests.ledger import CALL, LATER, calls, finish, get, plan, reach, start, take

DONE, REFUSED, DOUBT = CallOutcome.DONE, CallOutcome.REFUSED, CallOutcome.UNKNOWN


# ── doubt ────────────────────────────────────────────────────────────────────


# proves R32
@pytest.mark.parametrize("due_in", [None, 30.0])
@pytest.mark.parametrize("kind", [CALL, LATER])
async def test_a_lease_runs_out_under_a_call(
    store: Store, clock: Clock, kind: EffectKind, due_in: float | None
) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.STARTED, kind)
    assert await store.ledger.expired(10) == []
    assert not await store.ledger.mark_unknown(known, due_in)
    clock.offset += LEASE + 1
    [expired] = await store.ledger.expired(10)
    assert expired.identity == known.identity
    assert expired.expired
    assert await store.ledger.mark_unknown(expired, due_in)
    assert not await store.ledger.mark_unknown(expired, due_in), "the fence is another now"
    after = await get(store, known.identity)
    assert (after.state, after.fence, after.leased_until) == (EffectState.UNKNOWN, known.fence + 1, None)
    assert (after.due_at is not None) == (kind is LATER and due_in is not None)
    assert after.error is not None
    assert after.unknown_for is not None
    assert after.unknown_for > LEASE
    assert await calls(store, after) == [(1, None)], "nobody knows how it ended"
    assert (await event(store, owner.id)).attention
    assert await store.ledger.expired(10) == []


async def test_a_lease_runs_out_under_a_check(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.STARTED, LATER)
    await finish(store, known.identity, 1, "unknown", due_in=0.0)
    [leased] = await take(store)
    assert (leased.state, leased.number, leased.tries) == (EffectState.UNKNOWN, 1, 1)
    assert not await store.ledger.mark_unknown(leased, 5.0)
    clock.offset += LEASE + 1
    [expired] = await store.ledger.expired(10)
    assert not expired.expired, "it is not started"
    assert await store.ledger.mark_unknown(expired, 5.0)
    after = await get(store, known.identity)
    assert (after.state, after.fence, after.leased_until) == (EffectState.UNKNOWN, leased.fence + 1, None)
    assert after.due_at is not None
    assert (await event(store, owner.id)).attention
    clock.offset += 6
    assert [e.identity for e in await take(store)] == [known.identity]


async def test_doubt_about_a_repetition_of_what_came_back(store: Store, clock: Clock) -> None:
    """Call 1 comes back done while call 2 is under way, whose worker dies: there is nothing to doubt."""
    known = await reach(store, clock, await claimed(store), EffectState.UNKNOWN, CALL, repeat=Repeat.SAFE)
    await store.ledger.restart(known, WORKER, LEASE)
    assert await finish(store, known.identity, 1, "done", result=b"1") == Concluded(EffectState.STARTED)
    clock.offset += LEASE + 1
    [expired] = await store.ledger.expired(10)
    assert await store.ledger.mark_unknown(expired, None)
    after = await get(store, known.identity)
    assert (after.state, after.result, after.error, after.alert) == (EffectState.DONE, b"1", None, None)
    assert not (await event(store, after.event_id)).attention


async def test_a_call_comes_back_while_it_is_doubted(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """Whichever is first, it ends as done."""
    stores = [store, await open_store()]
    owner = await claimed(store)
    started = [await start(store, owner, f"{n}") for n in range(20)]
    clock.offset += LEASE + 1
    expired = {e.identity: e for e in await store.ledger.expired(100)}
    assert len(expired) == 20
    await asyncio.gather(
        *(stores[n % 2].ledger.mark_unknown(expired[s.identity], None) for n, s in enumerate(started)),
        *(stores[1 - n % 2].ledger.finish([Completion(s.identity, 1, DONE, b"1")]) for n, s in enumerate(started)),
    )
    for s in started:
        after = await get(store, s.identity)
        assert (after.state, after.result, after.alert) == (EffectState.DONE, b"1", None)
        assert await calls(store, after) == [(1, "done")]
    assert not (await event(store, owner.id)).attention


# ── finish ───────────────────────────────────────────────────────────────────


async def test_the_usual_case(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    started = await start(store, owner)
    clock.offset += 2
    assert await finish(store, started.identity, 1, "done", result=b'{"id":7}') == Concluded(EffectState.DONE)
    known = await get(store, started.identity)
    assert (known.state, known.fence, known.number, known.result) == (EffectState.DONE, 2, 1, b'{"id":7}')
    assert (known.leased_until, known.error, known.alert) == (None, None, None)
    assert known.finished_at is not None
    assert (known.finished_at - known.created_at).total_seconds() >= 2
    [told] = (await history(store, owner.id)).effects
    [call] = told.calls
    assert call.ended_at is not None
    assert (call.outcome, (call.ended_at - call.started_at).total_seconds() >= 2) == (DONE, True)


@pytest.mark.parametrize("outcome", list(CallOutcome))
async def test_the_end_of_a_call_told_again_changes_nothing(store: Store, raw: Raw, outcome: CallOutcome) -> None:
    """The commit may have been made although its answer was lost."""
    started = await start(store, await claimed(store))
    first = await finish(store, started.identity, 1, outcome, result=b"1", error="e")
    before = await raw.all("effects"), await raw.all("events")
    assert await finish(store, started.identity, 1, outcome, result=b"2", error="e") == first
    assert (await raw.all("effects"), await raw.all("events")) == before


async def test_an_end_that_is_certain_stays(store: Store) -> None:
    owner = await claimed(store)
    done, refused = await start(store, owner, "a"), await start(store, owner, "b")
    await finish(store, done.identity, 1, "done")
    await finish(store, refused.identity, 1, "refused")
    for outcome in CallOutcome:
        assert (await finish(store, done.identity, 1, outcome)).state is EffectState.DONE
        assert (await finish(store, refused.identity, 1, outcome)).state is EffectState.FAILED
    assert await calls(store, await get(store, done.identity)) == [(1, "done")]
    assert await calls(store, await get(store, refused.identity)) == [(1, "refused")]


async def test_an_end_that_is_told_only_if_nothing_was(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    untold, told = await start(store, owner, "untold"), await start(store, owner, "told")
    await finish(store, told.identity, 1, "unknown", error="503")
    before = await raw.all("effects"), await raw.all("effect_calls")
    assert (await finish(store, told.identity, 1, "refused", only_if_open=True)).state is EffectState.UNKNOWN
    assert (await raw.all("effects"), await raw.all("effect_calls")) == before
    assert (await finish(store, untold.identity, 1, "refused", only_if_open=True)).state is EffectState.FAILED
    assert (await finish(store, told.identity, 1, "refused")).state is EffectState.FAILED


async def test_a_late_answer_settles_the_doubt(store: Store) -> None:
    owner = await claimed(store)
    for kind, answer, due_in, state in (
        (CALL, "done", None, EffectState.DONE),
        (CALL, "refused", None, EffectState.FAILED),
        (LATER, "done", 0.0, EffectState.DONE),
        (LATER, "refused", 0.0, EffectState.PLANNED),
    ):
        key = f"{kind}-{answer}"
        if kind is CALL:
            identity = (await start(store, owner, key)).identity
        else:
            [identity] = await plan(store, owner, key)
            await take(store)
        concluded = await finish(store, identity, 1, "unknown", error="time-out")
        assert concluded == Concluded(EffectState.UNKNOWN)
        assert (await event(store, owner.id)).attention
        assert await finish(store, identity, 1, answer, result=b"9", due_in=due_in) == Concluded(state)
        after = await get(store, identity)
        assert after.state is state
        assert after.result == (b"9" if answer == "done" else None)
        assert await calls(store, after) == [(1, answer)]
        assert not (await event(store, owner.id)).attention
    # The refused outbox entry is due at once.
    [again] = await take(store)
    assert (again.key, again.number, again.unknown_for) == ("later-refused", 2, None)


async def test_a_late_permanent_rejection_is_not_retried(store: Store) -> None:
    owner = await claimed(store)
    [identity] = await plan(store, owner, "k")
    await take(store)
    await finish(store, identity, 1, "unknown", error="time-out", due_in=5.0)
    assert (await finish(store, identity, 1, "refused", error="gone")).state is EffectState.FAILED
    assert (await event(store, owner.id)).attention


@pytest.mark.parametrize("due_in", [None, 30.0])
async def test_refused_outbox_entries_wait(store: Store, clock: Clock, due_in: float | None) -> None:
    owner = await claimed(store)
    [identity] = await plan(store, owner, "k")
    await take(store)
    concluded = await finish(store, identity, 1, "refused", error="503", due_in=due_in)
    after = await get(store, identity)
    assert (after.error, after.tries, after.leased_until) == ("503", 1, None)
    if due_in is None:
        assert concluded.state is after.state is EffectState.FAILED
        assert (await event(store, owner.id)).attention
        return
    assert concluded.state is after.state is EffectState.PLANNED
    assert not (await event(store, owner.id)).attention
    assert await take(store) == []
    clock.offset += 31
    [again] = await take(store)
    assert (again.number, again.tries) == (2, 2)
    assert await calls(store, again) == [(1, "refused"), (2, None)]


async def test_several_ends_of_one_effect_in_one_batch(store: Store, clock: Clock) -> None:
    """As if they had come one by one: call 1 upgraded from unknown to done, then call 2 refused."""
    known = await reach(store, clock, await claimed(store), EffectState.UNKNOWN, CALL, repeat=Repeat.SAFE)
    await store.ledger.restart(known, WORKER, LEASE)
    identity = known.identity
    other = await start(store, await claimed(store, "evt_2"), "other")
    concluded = await store.ledger.finish(
        [
            Completion(identity, 2, DOUBT, error="reset"),
            Completion(other.identity, 1, DONE),
            Completion(identity, 1, DONE, b"1"),
            Completion(identity, 2, REFUSED),
            Completion(identity, 1, DONE, b"1"),
        ]
    )
    assert [c.state.value for c in concluded] == ["unknown", "done", "done", "done", "done"]
    after = await get(store, identity)
    assert (after.state, after.result, after.alert) == (EffectState.DONE, b"1", None)
    assert await calls(store, after) == [(1, "done"), (2, "refused")]


async def test_a_newer_call_finds_the_older_one_done(store: Store, clock: Clock) -> None:
    known = await reach(store, clock, await claimed(store), EffectState.UNKNOWN, CALL, repeat=Repeat.SAFE)
    await store.ledger.restart(known, WORKER, LEASE)
    assert await finish(store, known.identity, 1, "done", result=b"1") == Concluded(EffectState.STARTED)
    assert await finish(store, known.identity, 2, "refused") == Concluded(EffectState.DONE)
    after = await get(store, known.identity)
    assert (after.state, after.result) == (EffectState.DONE, b"1")


async def test_two_calls_of_one_effect_end_at_the_same_moment(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    """One was done, the other refused: whichever is told first, it is known to be done."""
    stores = [store, await open_store()]
    owner = await claimed(store)
    idents = []
    for n in range(20):
        known = await reach(store, clock, owner, EffectState.UNKNOWN, CALL, f"{n}", repeat=Repeat.SAFE)
        assert await store.ledger.restart(known, WORKER, LEASE)
        idents.append(known.identity)
    await asyncio.gather(
        *(stores[n % 2].ledger.finish([Completion(ident, 1, DONE, b"1")]) for n, ident in enumerate(idents)),
        *(stores[1 - n % 2].ledger.finish([Completion(ident, 2, REFUSED)]) for n, ident in enumerate(idents)),
    )
    for ident in idents:
        after = await get(store, ident)
        assert (after.state, after.result) == (EffectState.DONE, b"1")
        assert await calls(store, after) == [(1, "done"), (2, "refused")]
    assert not (await event(store, owner.id)).attention


async def test_finish_of_nothing(store: Store) -> None:
    with pytest.raises(WrongState):
        await finish(store, bytes(32), 1, "done")
    with pytest.raises(WrongState):
        await finish(store, bytes(32), 2, "refused")
    started = await start(store, await claimed(store))
    assert await finish(store, started.identity, 9, "done") == Concluded(EffectState.STARTED)


async def test_a_result_that_could_not_be_kept(store: Store) -> None:
    started = await start(store, await claimed(store))
    await finish(store, started.identity, 1, "done", error="too large")
    known = await get(store, started.identity)
    assert (known.state, known.result, known.error) == (EffectState.DONE, None, "too large")


async def test_many_concurrent_ends_from_two_stores(store: Store, open_store: OpenStore, raw: Raw) -> None:
    """Batches that share effects in opposite order, mixed ends: every call told, nobody deadlocks."""
    stores = [store, await open_store()]
    owner = await claimed(store)
    idents = [(await start(store, owner, f"{n}")).identity for n in range(40)]
    ends = [Completion(ident, 1, outcome) for ident in idents for outcome in (DOUBT, REFUSED)]
    await asyncio.gather(*(stores[n % 2].ledger.finish(ends if n % 4 < 2 else ends[::-1]) for n in range(8)))
    assert await raw.run("SELECT DISTINCT state FROM effects") == [("failed",)]
    assert await raw.run("SELECT DISTINCT outcome FROM effect_calls") == [("refused",)]


# ── decisions of a check ─────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("happened", [True, False])
async def test_a_check_concludes(store: Store, clock: Clock, kind: EffectKind, happened: bool) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.UNKNOWN, kind)
    assert (await event(store, owner.id)).attention
    stale = msgspec.structs.replace(known, fence=known.fence - 1)
    assert not await store.ledger.conclude(stale, happened, b"1", 0.0)
    assert await store.ledger.conclude(known, happened, b"1" if happened else None, 10.0)
    assert not await store.ledger.conclude(known, happened, b"1", 0.0)
    after = await get(store, known.identity)
    assert after.fence == known.fence + 1
    assert not (await event(store, owner.id)).attention
    if happened:
        assert (after.state, after.result) == (EffectState.DONE, b"1")
        return
    assert (after.state, after.unknown_for) == (EffectState.PLANNED, None), "that call is in doubt no more"
    assert (after.due_at is not None) == (kind is LATER)
    if kind is LATER:
        assert await take(store) == []
        clock.offset += 11
        [again] = await take(store)
        assert (again.number, again.unknown_for) == (2, None)
    # The evidence comes late, and beats what the check found.
    concluded = await finish(store, known.identity, 1, "done", result=b"2")
    assert concluded.alert is not None
    after = await get(store, known.identity)
    assert after.alert == concluded.alert
    assert after.state is (EffectState.DONE if kind is CALL else EffectState.STARTED)
    assert (await event(store, owner.id)).attention


@pytest.mark.parametrize("state", sorted(set(EffectState) - {EffectState.UNKNOWN}))
async def test_only_what_is_unknown_is_concluded_or_put_off(
    store: Store, clock: Clock, raw: Raw, state: EffectState
) -> None:
    known = await reach(store, clock, await claimed(store), state, LATER)
    before = await raw.all("effects")
    assert not await store.ledger.conclude(known, True, None, None)
    assert not await store.ledger.conclude(known, False, None, 0.0)
    assert not await store.ledger.put_off(known, 1.0, "e")
    assert await raw.all("effects") == before


async def test_put_off(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.STARTED, LATER)
    await finish(store, known.identity, 1, "unknown", error="time-out", due_in=0.0)
    [leased] = await take(store)
    assert not await store.ledger.put_off(known, 5.0, None), "not ours"
    assert await store.ledger.put_off(leased, 5.0, "the check failed")
    after = await get(store, known.identity)
    assert (after.state, after.error, after.leased_until) == (EffectState.UNKNOWN, "the check failed", None)
    assert (await event(store, owner.id)).attention, "also while its policy is at it"
    assert await take(store) == []
    clock.offset += 6
    [leased] = await take(store)
    assert await store.ledger.put_off(leased, None, None)
    after = await get(store, known.identity)
    assert (after.state, after.error, after.due_at) == (EffectState.UNKNOWN, "the check failed", None)
    assert (await event(store, owner.id)).attention, "a person must decide"


async def test_put_off_a_call_in_a_handler(store: Store, clock: Clock) -> None:
    known = await reach(store, clock, await claimed(store), EffectState.UNKNOWN, CALL)
    assert await store.ledger.put_off(known, 5.0, "e")
    after = await get(store, known.identity)
    assert (after.state, after.due_at, after.error) == (EffectState.UNKNOWN, None, "e")
