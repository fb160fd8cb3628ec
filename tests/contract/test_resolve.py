"""A person decides about an effect: audited, refused when it changed, and the event goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import effect_identity
from hookledger.ledger import Effect
from hookledger.states import EffectKind, EffectState, Repeat, State
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claim, claimed, event, history, settle
from tests.contract.conftest import OpenStore
from tests.ledger import CALL, LATER, calls, finish, get, plan, reach, start, take

UNKNOWN, DONE, FAILED, PLANNED = EffectState.UNKNOWN, EffectState.DONE, EffectState.FAILED, EffectState.PLANNED

ALLOWED = {
    (UNKNOWN, "happened"): DONE,
    (FAILED, "happened"): DONE,
    (PLANNED, "happened"): DONE,
    (UNKNOWN, "did_not_happen"): PLANNED,
    (FAILED, "did_not_happen"): PLANNED,
    (PLANNED, "cancel"): EffectState.CANCELLED,
    (FAILED, "cancel"): EffectState.CANCELLED,
}


# proves R46
@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("state", list(EffectState))
async def test_every_decision(store: Store, clock: Clock, raw: Raw, state: EffectState, kind: EffectKind) -> None:
    if state is EffectState.CANCELLED and kind is CALL:
        return
    for number, decision in enumerate(("happened", "did_not_happen", "cancel")):
        owner = await claimed(store, f"evt_{number}", type=f"t{number}")
        name = f"charge{number}"
        known = await reach(store, clock, owner, state, kind, "k", name=name)
        already = len((await history(store, owner.id)).actions)
        stale = msgspec.structs.replace(known, fence=known.fence - 1)
        before = await raw.all("effects"), await raw.all("actions"), await raw.all("events")
        with pytest.raises(WrongState):
            await store.ledger.resolve(stale, decision, None, "ada", "looked")
        target = ALLOWED.get((state, decision))
        if target is None or (kind is CALL and decision == "cancel"):
            with pytest.raises(WrongState):
                await store.ledger.resolve(known, decision, None, "ada", "looked")
            assert (await raw.all("effects"), await raw.all("actions"), await raw.all("events")) == before
            continue
        clock.offset += 50
        await store.ledger.resolve(known, decision, b"1" if decision == "happened" else None, "ada", "looked")
        after = await get(store, known.identity)
        assert (after.state, after.fence, after.leased_until) == (target, known.fence + 1, None)
        assert after.result == (b"1" if target is DONE else None)
        assert (after.finished_at is None) == (target is PLANNED)
        if target is PLANNED:
            assert (after.tries, after.age < 5, after.unknown_for) == (0, True, None)
            assert (after.due_at is not None) == (kind is LATER)
            if kind is LATER:
                assert [e.number for e in await take(store, name)] == [2]
        found = await history(store, owner.id)
        assert not found.event.attention
        action = found.actions[-1]
        assert len(found.actions) == already + 1
        assert (action.name, action.actor, action.reason) == ("resolve", "ada", "looked")
        assert (action.subject, action.from_state, action.to_state) == (f"{name}:k", state, target)


async def test_the_event_resumes_where_it_waited(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    assert await settle(store, owner, "review", reason="may have happened")
    clock.offset += 50
    await store.ledger.resolve(known, "did_not_happen", None, "ada", "asked the bank")
    found = await history(store, owner.id)
    assert (found.event.state, found.event.attempts, found.event.reason) == (State.PENDING, 0, None)
    assert not found.event.attention
    assert [(a.name, a.subject, a.from_state, a.to_state) for a in found.actions] == [
        ("resolve", "charge:k", "unknown", "planned"),
        ("retry", None, "needs_review", "pending"),
    ]
    again = await claim(store)
    assert again.run_age < 5
    started = await store.ledger.restart(await get(store, known.identity), WORKER, LEASE)
    assert started is not None
    assert (started.number, started.generation) == (2, 1)


@pytest.mark.parametrize("way", ["complete", "fail", "reschedule"])
async def test_an_event_that_waits_for_nothing_stays(store: Store, clock: Clock, way: str) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    assert await settle(store, owner, way)  # type: ignore[arg-type]
    before = (await event(store, owner.id)).state
    await store.ledger.resolve(known, "happened", None, "ada", "looked")
    found = await history(store, owner.id)
    assert found.event.state is before
    assert [a.name for a in found.actions] == ["resolve"]


async def test_an_outbox_entry_does_not_send_its_event_round(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, LATER)
    assert await settle(store, owner, "review")
    await store.ledger.resolve(known, "did_not_happen", None, "ada", "looked")
    assert (await event(store, owner.id)).state is State.NEEDS_REVIEW


# ── what an event waited for becomes known ───────────────────────────────────

WORDS = "effect charge 'k' may have happened"


async def _late(store: Store, known: Effect, outcome: str) -> None:
    await finish(store, known.identity, 1, outcome)


async def _checked(store: Store, known: Effect, happened: bool) -> None:
    assert await store.ledger.conclude(known, happened, None, None)


SETTLED: dict[str, tuple[Callable[[Store, Effect], Awaitable[None]], EffectState]] = {
    "came back late": (lambda store, known: _late(store, known, "done"), DONE),
    "refused late": (lambda store, known: _late(store, known, "refused"), FAILED),
    "checked: it did": (lambda store, known: _checked(store, known, True), DONE),
    "checked: it did not": (lambda store, known: _checked(store, known, False), PLANNED),
}


@pytest.mark.parametrize("way", SETTLED)
async def test_it_becomes_known_without_an_operator(store: Store, clock: Clock, way: str) -> None:
    settle_it, state = SETTLED[way]
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    assert await settle(store, owner, "review", reason=f"{WORDS}: 503")
    clock.offset += 50
    await settle_it(store, known)
    assert (await get(store, known.identity)).state is state
    found = await history(store, owner.id)
    assert (found.event.state, found.event.attempts, found.event.reason) == (State.PENDING, 0, None)
    assert not found.event.attention
    [action] = found.actions
    assert (action.name, action.actor, action.from_state, action.to_state, action.reason) == (
        *("retry", "hookledger", "needs_review", "pending"),
        f"what it waited for is known: charge:k is {state}",
    )
    assert (await claim(store)).run_age < 5


@pytest.mark.parametrize("way", [*SETTLED, "a person"])
async def test_only_those_that_waited_for_it_continue(store: Store, clock: Clock, way: str) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    reasons = {
        "other event": f"{WORDS} (no answer): find out",
        "other key": "effect charge 'k2' may have happened: 503",
        "longer name": "effect charges 'k' may have happened: 503",
        "own reason": "look at this",
        "quoted": f"look: {WORDS}",
    }
    events = {}
    for title, reason in reasons.items():
        other = await claimed(store, title, type=title)
        assert await settle(store, other, "review", reason=reason)
        events[title] = other.id
    failed = await claimed(store, "failed", type="failed")
    assert await settle(store, failed, "fail", reason=f"{WORDS}: 503")
    elsewhere = await claimed(store, "elsewhere", type="elsewhere", source="github")
    assert await settle(store, elsewhere, "review", reason=f"{WORDS}: 503")
    if way == "a person":
        await store.ledger.resolve(known, "happened", None, "ada", "looked")
    else:
        await SETTLED[way][0](store, known)
    states = {title: (await event(store, ident)).state for title, ident in events.items()}
    assert [title for title, state in states.items() if state is State.PENDING] == ["other event"]
    [action] = (await history(store, events["other event"])).actions
    assert (action.name, action.actor) == ("retry", "ada" if way == "a person" else "hookledger")
    assert (await event(store, failed.id)).state is State.FAILED
    assert (await event(store, elsewhere.id)).state is State.NEEDS_REVIEW
    assert (await event(store, owner.id)).state is State.PROCESSING


async def test_a_shared_effect_is_waited_for_from_any_source(store: Store, clock: Clock) -> None:
    key = "o'clock \\ \u2028 100%_"
    owner = await claimed(store)
    identity = effect_identity("", "charge", key)
    known = await reach(store, clock, owner, UNKNOWN, CALL, key, identity=identity)
    elsewhere = await claimed(store, "elsewhere", type="elsewhere", source="github")
    assert await settle(store, elsewhere, "review", reason=f"effect charge {key!r} may have happened: 503")
    await finish(store, known.identity, 1, "done")
    assert (await event(store, elsewhere.id)).state is State.PENDING


async def test_it_was_called_again_and_an_earlier_call_came_back(store: Store, clock: Clock) -> None:
    """Known when the lease of the newer call runs out, or when that call ends."""
    for number, end in enumerate(("doubt", "unknown")):
        key = f"k{number}"
        owner = await claimed(store, f"evt_{number}", type=f"t{number}")
        known = await reach(store, clock, owner, UNKNOWN, CALL, key)
        assert await settle(store, owner, "review", reason=f"effect charge {key!r} may have happened: 503")
        assert await store.ledger.restart(known, WORKER, LEASE) is not None
        assert (await finish(store, known.identity, 1, "done")).state is EffectState.STARTED
        assert (await event(store, owner.id)).state is State.NEEDS_REVIEW
        if end == "doubt":
            clock.offset += LEASE + 1
            assert await store.ledger.mark_unknown(await get(store, known.identity), None)
        else:
            await finish(store, known.identity, 2, "unknown")
        assert (await get(store, known.identity)).state is DONE
        assert (await event(store, owner.id)).state is State.PENDING


async def test_an_unknown_outcome_alone_retries_no_event(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    started = await start(store, owner)
    assert await settle(store, owner, "review", reason=f"{WORDS}: 503")
    clock.offset += LEASE + 1
    assert await store.ledger.mark_unknown(await get(store, started.identity), None)
    assert await store.ledger.put_off(await get(store, started.identity), None, "no answer")
    assert (await event(store, owner.id)).state is State.NEEDS_REVIEW


async def test_a_call_in_flight_is_not_decided(store: Store) -> None:
    started = await start(store, await claimed(store))
    with pytest.raises(WrongState, match="in progress"):
        await store.ledger.resolve(await get(store, started.identity), "happened", None, "ada", "looked")


async def test_it_ended_while_an_operator_looked(store: Store, clock: Clock, raw: Raw) -> None:
    known = await reach(store, clock, await claimed(store), UNKNOWN, CALL)
    await finish(store, known.identity, 1, "done", result=b"1")
    with pytest.raises(WrongState, match="has changed"):
        await store.ledger.resolve(known, "did_not_happen", None, "ada", "looked")
    assert (await get(store, known.identity)).state is DONE
    assert await raw.count("actions") == 0


async def test_racing_decisions_one_wins(store: Store, open_store: OpenStore, clock: Clock) -> None:
    stores = [store, await open_store()]
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    decisions = ("happened", "did_not_happen")
    results = await asyncio.gather(
        *(stores[n % 2].ledger.resolve(known, decisions[n % 2], None, f"op{n}", "now") for n in range(10)),
        return_exceptions=True,
    )
    assert [type(r) for r in results].count(WrongState) == 9
    [action] = (await history(store, owner.id)).actions
    assert results[int(action.actor[2:])] is None


async def test_a_decision_names_who_and_why(store: Store, clock: Clock, raw: Raw) -> None:
    known = await reach(store, clock, await claimed(store), UNKNOWN, CALL)
    before = await raw.all("effects")
    for actor, reason in (("", "why"), ("ada", ""), ("ada", "\ud800")):
        with pytest.raises(BadData):
            await store.ledger.resolve(known, "happened", None, actor, reason)
    assert await raw.all("effects") == before


# ── evidence against a decision ──────────────────────────────────────────────


async def test_done_after_all(store: Store, clock: Clock) -> None:
    """Decided that it had not happened; before it is made again the first call comes back done."""
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    await store.ledger.resolve(known, "did_not_happen", None, "ada", "looked")
    concluded = await finish(store, known.identity, 1, "done", result=b"1")
    assert concluded.state is DONE
    assert concluded.alert is not None
    assert "decided" in concluded.alert
    after = await get(store, known.identity)
    assert (after.state, after.result, after.alert) == (DONE, b"1", concluded.alert)
    assert await store.ledger.restart(after, WORKER, LEASE) is None, "it is not made a second time"
    assert (await event(store, owner.id)).attention


async def test_done_twice_is_told_and_acknowledged(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    await store.ledger.resolve(known, "did_not_happen", None, "ada", "looked")
    await store.ledger.restart(await get(store, known.identity), WORKER, LEASE)
    assert (await finish(store, known.identity, 2, "done", result=b"2")).alert is None
    assert not (await event(store, owner.id)).attention
    seen = await get(store, known.identity)
    concluded = await finish(store, known.identity, 1, "done", result=b"1")
    assert concluded.alert is not None
    assert "twice" in concluded.alert
    after = await get(store, known.identity)
    assert (after.state, after.result, after.alert) == (DONE, b"2", concluded.alert)
    assert (await event(store, owner.id)).attention
    with pytest.raises(WrongState):  # whoever has not read the alert cannot clear it
        await store.ledger.resolve(seen, "happened", None, "ada", "fine")
    await store.ledger.resolve(after, "happened", None, "ada", "refunded one")
    cleared = await get(store, known.identity)
    assert (cleared.state, cleared.result, cleared.alert) == (DONE, b"2", None)
    found = await history(store, owner.id)
    assert not found.event.attention
    assert (found.actions[-1].from_state, found.actions[-1].to_state) == ("done", "done")
    with pytest.raises(WrongState):
        await store.ledger.resolve(cleared, "did_not_happen", None, "ada", "again")


async def test_alerts_add_up_while_a_newer_call_is_in_flight(store: Store, clock: Clock) -> None:
    known = await reach(store, clock, await claimed(store), UNKNOWN, CALL, repeat=Repeat.SAFE)
    await store.ledger.restart(known, WORKER, LEASE)
    await finish(store, known.identity, 2, "unknown")
    await store.ledger.resolve(await get(store, known.identity), "did_not_happen", None, "ada", "looked")
    await store.ledger.restart(await get(store, known.identity), WORKER, LEASE)
    first = await finish(store, known.identity, 1, "done")
    second = await finish(store, known.identity, 2, "done")
    assert (first.state, second.state) == (EffectState.STARTED, EffectState.STARTED)
    after = await get(store, known.identity)
    assert after.alert == f"{first.alert}\n{second.alert}"
    assert after.lease_left > 0, "call 3 keeps its lease"
    assert (await finish(store, known.identity, 3, "refused")).state is DONE
    after = await get(store, known.identity)
    assert (after.state, after.alert) == (DONE, f"{first.alert}\n{second.alert}")
    assert await calls(store, after) == [(1, "done"), (2, "done"), (3, "refused")]


async def test_refused_after_it_was_said_to_have_happened(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    await store.ledger.resolve(known, "happened", None, "ada", "looked")
    concluded = await finish(store, known.identity, 1, "refused")
    assert concluded.state is DONE
    assert concluded.alert is not None
    assert (await event(store, owner.id)).attention


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("kind", [CALL, LATER])
async def test_a_wrong_decision_is_reversed(store: Store, clock: Clock, kind: EffectKind, waits: bool) -> None:
    """Refused after it was decided that it had happened: it is sent round again."""
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, kind)
    await store.ledger.resolve(known, "happened", b"1", "ada", "looked")
    assert await settle(store, owner, "review" if waits else "complete")
    assert (await finish(store, known.identity, 1, "refused")).alert is not None
    alerted = await get(store, known.identity)
    assert (alerted.decided, alerted.called_done) == ("happened", False)
    await store.ledger.resolve(alerted, "did_not_happen", None, "ada", "I was wrong")
    assert [a.replaced for a in (await history(store, known.event_id)).actions if a.name == "resolve"] == [None, "1"]
    after = await get(store, known.identity)
    assert (after.state, after.decided, after.alert, after.result) == (PLANNED, "did_not_happen", None, None)
    assert (after.finished_at, after.tries, after.unknown_for) == (None, 0, None)
    assert (after.due_at is not None) == (kind is LATER)
    found = await history(store, owner.id)
    assert not found.event.attention
    retried = waits and kind is CALL
    assert found.event.state is (State.PENDING if retried else State.NEEDS_REVIEW if waits else State.PROCESSED)
    told = [(a.name, a.from_state, a.to_state) for a in found.actions[1:]]
    assert told == [("resolve", "done", "planned"), ("retry", "needs_review", "pending")][: 2 if retried else 1]
    if kind is LATER:
        assert [e.number for e in await take(store)] == [2]
    else:
        assert await store.ledger.restart(after, WORKER, LEASE) is not None
    assert (await finish(store, known.identity, 2, "done")).state is DONE


async def test_a_wrong_result_is_corrected(store: Store, clock: Clock) -> None:
    for number, way in enumerate(("fail", "review", "complete")):
        owner = await claimed(store, f"evt_{number}", type=f"t{number}")
        known = await reach(store, clock, owner, UNKNOWN, CALL, f"k{number}")
        await store.ledger.resolve(known, "happened", b"1", "ada", "looked")
        assert await settle(store, owner, way)  # type: ignore[arg-type]
        before = (await event(store, owner.id)).state
        await store.ledger.resolve(await get(store, known.identity), "happened", b"2", "ada", "mistyped")
        after = await get(store, known.identity)
        assert (after.state, after.result) == (DONE, b"2")
        found = await history(store, owner.id)
        assert found.event.state is before, "the operator retries it"
        told = [(a.name, a.reason, a.replaced) for a in found.actions]
        assert told == [("resolve", "looked", None), ("resolve", "mistyped", "1")], "it stays in the audit log"
        with pytest.raises(WrongState):
            await store.ledger.resolve(after, "happened", None, "ada", "nothing new")
    started = await start(store, await claimed(store, "evt_9", type="t9"), "made")
    await finish(store, started.identity, 1, "done", result=b"1")
    with pytest.raises(WrongState):  # a call's own result is not a person's to change
        await store.ledger.resolve(await get(store, started.identity), "happened", b"2", "ada", "nicer")


async def test_the_result_comes_after_the_decision(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    await store.ledger.resolve(known, "happened", None, "ada", "looked")
    assert (await finish(store, known.identity, 1, "done", result=b"7")).alert is None
    assert (await get(store, known.identity)).result == b"7"


async def test_a_result_that_was_forgotten(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, CALL)
    await store.ledger.resolve(known, "happened", None, "ada", "looked")
    await store.ledger.resolve(await get(store, known.identity), "happened", b"7", "ada", "the receipt")
    after = await get(store, known.identity)
    assert (after.state, after.result) == (DONE, b"7")
    assert [a.to_state for a in (await history(store, owner.id)).actions] == ["done", "done"]
    # Whoever decided before is not contradicted by the call that comes back now.
    assert (await finish(store, known.identity, 1, "done", result=b"9")).alert is None
    assert (await get(store, known.identity)).result == b"7"


async def test_done_after_it_was_cancelled(store: Store, clock: Clock) -> None:
    for number, (decision, state) in enumerate((("cancel", EffectState.CANCELLED), ("happened", DONE))):
        name = f"mail{number}"
        owner = await claimed(store, f"evt_{number}", type=f"t{number}")
        known = await reach(store, clock, owner, UNKNOWN, LATER, name=name)
        await store.ledger.resolve(known, "did_not_happen", None, "ada", "looked")
        await store.ledger.resolve(await get(store, known.identity), "cancel", None, "ada", "not needed")
        concluded = await finish(store, known.identity, 1, "done", result=b"1")
        assert concluded.state is EffectState.CANCELLED
        assert concluded.alert is not None
        assert (await event(store, owner.id)).attention
        await store.ledger.resolve(await get(store, known.identity), decision, None, "ada", "I see")
        after = await get(store, known.identity)
        assert (after.state, after.alert) == (state, None)
        assert not (await event(store, owner.id)).attention


# ── attention ────────────────────────────────────────────────────────────────


async def test_attention_of_an_event_with_several_effects(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    a = await reach(store, clock, owner, UNKNOWN, CALL, "a")
    b = await reach(store, clock, owner, FAILED, LATER, "b")
    c = await reach(store, clock, owner, FAILED, CALL, "c")
    assert (await event(store, owner.id)).attention
    await store.ledger.conclude(a, True, None, None)
    assert (await event(store, owner.id)).attention
    await store.ledger.resolve(b, "cancel", None, "ada", "no")
    assert not (await event(store, owner.id)).attention, "a refused call is its handler's business"
    await store.ledger.restart(c, WORKER, LEASE)
    await finish(store, c.identity, 2, "unknown")
    assert (await event(store, owner.id)).attention
    other = await claimed(store, "evt_2", type="other")
    assert not (await event(store, other.id)).attention


async def test_two_effects_of_one_event_change_at_the_same_moment(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    """One leaves what needs a person, the other enters it: whoever comes second sees the first."""
    stores = [store, await open_store()]
    for number in range(15):
        owner = await claimed(store, f"evt_{number}", type=f"t{number}")
        a = await reach(store, clock, owner, UNKNOWN, CALL, f"a{number}")
        b = await start(store, owner, f"b{number}")
        c = await start(store, owner, f"c{number}")
        await asyncio.gather(
            stores[0].ledger.conclude(a, True, None, None),
            finish(stores[1], b.identity, 1, "unknown"),
        )
        assert (await event(store, owner.id)).attention
        await asyncio.gather(
            stores[0].ledger.conclude(await get(store, b.identity), True, None, None),
            finish(stores[1], c.identity, 1, "unknown"),
        )
        await stores[1].ledger.conclude(await get(store, c.identity), True, None, None)
        assert not (await event(store, owner.id)).attention


async def test_an_event_that_was_pruned(store: Store, clock: Clock, raw: Raw) -> None:
    """Effects outlive their events."""
    known = await reach(store, clock, await claimed(store), UNKNOWN, CALL)
    await raw.run("DELETE FROM events")
    await store.ledger.resolve(known, "happened", None, "ada", "looked")
    assert (await get(store, known.identity)).state is DONE


async def test_history_tells_of_effects(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    other = await claimed(store, "evt_2", type="other")
    await start(store, other, "not this one")
    first = await start(store, owner, "1")
    clock.offset += 1
    [second] = await plan(store, owner, "2")
    await finish(store, first.identity, 1, "done", result=b"1")
    await take(store)
    await finish(store, second, 1, "refused", error="429", due_in=0.0)
    assert [e.identity for e in await take(store)] == [second]
    found = await history(store, owner.id)
    assert [(e.effect.key, e.effect.state.value) for e in found.effects] == [("1", "done"), ("2", "started")]
    assert [[(c.number, c.outcome, c.error) for c in e.calls] for e in found.effects] == [
        [(1, "done", None)],
        [(1, "refused", "429"), (2, None, None)],
    ]
