"""Effects across runs: what is done is skipped, and what somebody decided to repeat is done once more."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import identity, operation_key
from hookledger.ledger import Effect, Intent, Started
from hookledger.model import Claimed
from hookledger.operate.audit import by
from hookledger.operate.context import Context
from hookledger.operate.replay import replay
from hookledger.states import EffectKind, EffectState, State
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claim, claimed, event, history, settle
from tests.contract.conftest import OpenStore
from tests.contract.test_replay import whole
from tests.ledger import CALL, LATER, finish, get, intent, plan, start, take
from tests.ledger import reach as reach_effect

ONCE = EffectKind.ONCE


def once_intent(owner: Claimed, name: str = "credit", key: str = "k") -> Intent:
    ident = identity(owner.source, b"once", name.encode(), key.encode())
    return Intent(ident, ONCE, owner.source, name, key, owner.id, owner.claim)


async def once(store: Store, owner: Claimed) -> bool:
    """What a handler is told; it commits in any case."""
    transaction = store.transaction()
    first = await transaction.once(once_intent(owner))
    await transaction.commit([])
    return first


async def three_effects(store: Store) -> Claimed:
    """An event that is processed, with a `once`, a call and an outbox entry, all done."""
    owner = await claimed(store)
    assert await once(store, owner)
    await finish(store, (await start(store, owner)).identity, 1, "done", result=b'"ch_1"')
    [later] = await plan(store, owner, "k", name="mail", lane="one")
    assert [e.identity for e in await take(store, "mail")] == [later]
    await finish(store, later, 1, "done")
    assert await settle(store, owner, "complete")
    return owner


async def effects_of(store: Store, event_id: UUID) -> dict[str, Effect]:
    known = (await history(store, event_id)).effects
    return {told.effect.name: told.effect for told in known if not told.effect.superseded}


# proves R47
async def test_what_is_done_is_skipped_in_every_later_run(store: Store, raw: Raw) -> None:
    first = await three_effects(store)
    before = await raw.all("effects"), await raw.all("effect_calls")
    for _ in range(2):
        await store.replay(first.id, State.PROCESSED, "ada", "again")
        owner = await claim(store)
        assert not await once(store, owner)
        [call] = await store.ledger.start([intent(owner)], WORKER)
        assert isinstance(call, Effect)
        assert (call.state, call.result) == (EffectState.DONE, b'"ch_1"'), "the handler gets what the call returned"
        transaction = store.transaction()
        known = await transaction.plan(intent(owner, name="mail", kind=LATER, lane="one"))
        await transaction.commit([])
        assert known is not None
        assert known.state is EffectState.DONE
        assert await take(store, "mail") == []
        assert await settle(store, owner, "complete")
    assert (await raw.all("effects"), await raw.all("effect_calls")) == before


# proves R47
async def test_one_effect_is_repeated_on_purpose(store: Store) -> None:
    first = await three_effects(store)
    known = await effects_of(store, first.id)
    row = await event(store, first.id)
    run = await store.replay(first.id, row.state, "ada", "the bank lost it", seen=row.claim, repeat=[known["charge"]])
    assert run == 2
    after = await effects_of(store, first.id)
    assert (after["mail"], after["credit"]) == (
        msgspec.structs.replace(known["mail"], age=after["mail"].age, unknown_for=after["mail"].unknown_for),
        msgspec.structs.replace(known["credit"], age=after["credit"].age),
    ), "nothing else is touched"
    charge = after["charge"]
    assert (charge.state, charge.generation) == (EffectState.PLANNED, 2)
    assert (charge.result, charge.finished_at) == (None, None)
    assert [(a.name, a.subject, a.from_state, a.to_state) for a in (await history(store, first.id)).actions] == [
        ("repeat", "charge:k", "done", "planned"),
        ("replay", "run 2", "processed", "pending"),
    ]
    owner = await claim(store)
    assert not await once(store, owner)
    [told] = await store.ledger.start([intent(owner)], WORKER)
    assert isinstance(told, Effect)
    started = await store.ledger.restart(told, WORKER, LEASE)
    assert started == Started(charge.identity, started.fence if started else 0, 2, 2)
    concluded = await finish(store, charge.identity, 2, "done", result=b'"ch_2"')
    assert (concluded.state, concluded.alert) == (EffectState.DONE, None)
    assert operation_key(charge.identity, 1) != operation_key(charge.identity, 2)
    [history_of] = [e for e in (await history(store, first.id)).effects if e.effect.name == "charge"]
    assert [(c.number, c.generation) for c in history_of.calls] == [(1, 1), (2, 2)], "both stay visible"


async def test_an_outbox_entry_is_repeated_after_the_next_commit(store: Store) -> None:
    first = await three_effects(store)
    known = (await effects_of(store, first.id))["mail"]
    await store.replay(first.id, State.PROCESSED, "ada", "it bounced", repeat=[known])
    assert await take(store, "mail") == [], "not before the run has asked for it, and committed"
    owner = await claim(store)
    transaction = store.transaction()
    assert await transaction.plan(intent(owner, name="mail", kind=LATER, lane="one")) is None
    await transaction.rollback()
    assert await take(store, "mail") == [], "a run that failed has asked for nothing"
    transaction = store.transaction()
    assert await transaction.plan(intent(owner, name="mail", kind=LATER, lane="one")) is None
    await transaction.commit([])
    [again] = await take(store, "mail")
    assert (again.identity, again.kind, again.generation, again.number) == (known.identity, LATER, 2, 2)
    assert (await finish(store, again.identity, 2, "done")).state is EffectState.DONE


async def test_a_once_is_true_once_more(store: Store) -> None:
    first = await three_effects(store)
    for run in (2, 3):
        known = (await effects_of(store, first.id))["credit"]
        assert await store.replay(first.id, State.PROCESSED, "ada", "rolled back by hand", repeat=[known]) == run
        assert "credit" not in await effects_of(store, first.id)
        owner = await claim(store)
        assert await once(store, owner)
        assert not await once(store, owner)
        assert await settle(store, owner, "complete")
    rows = [told.effect for told in (await history(store, first.id)).effects if told.effect.name == "credit"]
    assert [(row.superseded, row.state, row.key) for row in rows] == [
        (True, EffectState.DONE, "k"),
        (True, EffectState.DONE, "k"),
        (False, EffectState.DONE, "k"),
    ], "each time it was done stays visible"
    assert len({row.claim for row in rows}) == 3
    with pytest.raises(WrongState, match="made way"):
        await store.replay(first.id, State.PROCESSED, "ada", "again", repeat=[rows[0]])
    names = [(a.name, a.subject, a.to_state) for a in (await history(store, first.id)).actions]
    assert names[:2] == [("repeat", "credit:k", "absent"), ("replay", "run 2", "pending")]


async def test_the_decision_and_the_replay_are_one(store: Store, raw: Raw) -> None:
    """Whatever refuses one of them leaves nothing of the others."""
    first = await three_effects(store)
    known = await effects_of(store, first.id)
    row = await event(store, first.id)
    before = await whole(raw)
    stale = msgspec.structs.replace(known["mail"], fence=known["mail"].fence - 1)
    with pytest.raises(WrongState, match="mail:k has changed"):
        await store.replay(
            first.id, row.state, "ada", "x", seen=row.claim, repeat=[known["charge"], known["credit"], stale]
        )
    with pytest.raises(WrongState, match="has run since then"):
        await store.replay(first.id, row.state, "ada", "x", seen=row.claim - 1, repeat=list(known.values()))
    with pytest.raises(BadData):
        await store.replay(first.id, row.state, "", "x", repeat=list(known.values()))
    assert await whole(raw) == before


@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("state", list(EffectState))
async def test_only_what_is_over_is_repeated(
    store: Store, clock: Clock, raw: Raw, state: EffectState, kind: EffectKind
) -> None:
    if state is EffectState.CANCELLED and kind is CALL:
        return
    owner = await claimed(store)
    known = await reach_effect(store, clock, owner, state, kind)
    assert await settle(store, owner, "fail")
    before = await whole(raw)
    if state not in (EffectState.DONE, EffectState.CANCELLED):
        with pytest.raises(WrongState, match=f"is {state}"):
            await store.replay(owner.id, State.FAILED, "ada", "again", repeat=[known])
        assert await whole(raw) == before
        return
    await store.replay(owner.id, State.FAILED, "ada", "again", repeat=[known])
    after = await get(store, known.identity)
    assert (after.state, after.fence) == (EffectState.PLANNED, known.fence + 1)
    # What never happened keeps its key: should it have happened all the same, the remote still knows it.
    assert after.generation == (2 if state is EffectState.DONE else 1)
    assert (after.tries, after.age < 5, after.decided, after.called_done) == (0, True, None, False)


async def test_an_effect_of_another_event_or_in_alert_is_not_repeated(store: Store, clock: Clock, raw: Raw) -> None:
    first = await three_effects(store)
    other = await claimed(store, "evt_2")
    known = await reach_effect(store, clock, other, EffectState.UNKNOWN, CALL, "k2")
    await store.ledger.resolve(known, "did_not_happen", None, "ada", "looked")
    await finish(store, known.identity, 1, "done")
    assert await settle(store, other, "complete")
    mail = (await effects_of(store, first.id))["mail"]
    before = await whole(raw)
    with pytest.raises(WrongState, match="another event's"):
        await store.replay(other.id, State.PROCESSED, "ada", "x", repeat=[mail])
    with pytest.raises(WrongState, match="alert"):
        await store.replay(other.id, State.PROCESSED, "ada", "x", repeat=[await get(store, known.identity)])
    assert await whole(raw) == before


async def test_racing_repetitions_one_wins(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    first = await three_effects(store)
    known = list((await effects_of(store, first.id)).values())
    row = await event(store, first.id)
    results = await asyncio.gather(
        *(
            stores[n % 2].replay(
                first.id, row.state, f"op{n}", "now", seen=row.claim, repeat=known[:: 1 if n % 3 else -1]
            )
            for n in range(8)
        ),
        return_exceptions=True,
    )
    actions = (await history(store, first.id)).actions
    assert [a.name for a in actions] == ["repeat"] * 3 + ["replay"]
    winner = actions[0].actor
    losers = [result for result in results if isinstance(result, WrongState)]
    assert len(losers) == 7
    assert all(f"replay by {winner}" in str(loser) for loser in losers), "told who, not only that it changed"
    assert {e.generation for e in (await effects_of(store, first.id)).values()} == {2}


async def test_others_ask_for_a_once_while_it_makes_way(store: Store, open_store: OpenStore) -> None:
    """It is true once more, for whoever asks first; for nobody else, at whatever moment they ask."""
    other = await open_store()
    first = await three_effects(store)
    known = (await effects_of(store, first.id))["credit"]
    owners = [await claimed(store, f"other_{n}", type=f"t{n}") for n in range(6)]
    answers = await asyncio.gather(
        *(once(store if n % 2 else other, owner) for n, owner in enumerate(owners)),
        other.replay(first.id, State.PROCESSED, "ada", "once more", repeat=[known]),
        *(once(other if n % 2 else store, owner) for n, owner in enumerate(owners)),
    )
    assert answers.pop(6) == 2
    answers.append(await once(store, await claim(store)))
    assert answers.count(True) == 1


async def test_what_was_agreed_to_is_what_is_done(store: Store, clock: Clock, raw: Raw) -> None:
    """The event stayed as it was, and one of its effects did not: whoever agreed has agreed to something else."""
    owner = await claimed(store)
    known = await reach_effect(store, clock, owner, EffectState.FAILED, CALL)
    assert await settle(store, owner, "fail")
    context = Context(store)
    seen = await history(store, owner.id)
    shown = replay.preview(context, seen)
    await store.ledger.resolve(known, "happened", None, "bob", "found it")
    before = await whole(raw)
    with pytest.raises(WrongState, match="its effects have changed since the preview"):
        await replay.replay(context, by("ada", "again"), seen.event, shown=shown)
    assert await whole(raw) == before
    again = replay.preview(context, await history(store, owner.id))
    assert (await replay.replay(context, by("ada", "again"), seen.event, shown=again)).event.run == 2


async def test_a_call_of_the_generation_before_ends_late(store: Store, clock: Clock) -> None:
    """It is recorded, and moves nothing of the new one."""
    owner = await claimed(store)
    known = await reach_effect(store, clock, owner, EffectState.UNKNOWN, CALL)
    await store.ledger.resolve(known, "happened", None, "ada", "saw it")
    assert await settle(store, owner, "complete")
    await store.replay(owner.id, State.PROCESSED, "ada", "again", repeat=[await get(store, known.identity)])
    await finish(store, known.identity, 1, "done", result=b"1")
    after = await get(store, known.identity)
    assert (after.state, after.generation, after.result, after.alert) == (EffectState.PLANNED, 2, None, None)
    [told] = (await history(store, owner.id)).effects
    assert [(c.number, c.generation, c.outcome) for c in told.calls] == [(1, 1, "done")]


async def test_what_was_done_though_cancelled_is_repeated_under_a_new_key(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    [ident] = await plan(store, owner, "k")
    assert await settle(store, owner, "complete")
    await take(store)
    clock.offset += LEASE + 1
    assert await store.ledger.mark_unknown(await get(store, ident), None)
    for decision in ("did_not_happen", "cancel"):
        await store.ledger.resolve(await get(store, ident), decision, None, "ada", "not in their log")
    told = await finish(store, ident, 1, "done")
    assert told.alert is not None
    await store.ledger.resolve(await get(store, ident), "cancel", None, "ada", "seen")
    before = await get(store, ident)
    assert (before.state, before.called_done) == (EffectState.CANCELLED, True)
    await store.replay(owner.id, State.PROCESSED, "ada", "once more", repeat=[before])
    after = await get(store, ident)
    assert (after.state, after.generation) == (EffectState.PLANNED, before.generation + 1)
    assert (after.called_done, after.decided) == (False, None)
