"""Requests for rehearsals: one way through, whoever races, dies or comes late; the same rows in both databases."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.ledger import Effect
from hookledger.model import EventRow, Kind
from hookledger.rehearsals import DIED, MAX_RESULT, NOBODY, Ended, Result, Step, StepFate, Write
from hookledger.states import EffectKind, RehearsalState
from hookledger.store.protocol import Store
from hookledger.store.rehearsals import KEPT
from tests.builders import KIND, Raw, claimed, event, history, recorded, way_out
from tests.contract.conftest import OpenStore
from tests.contract.test_impossible_rows import accepted_in
from tests.ledger import intent

FOUND = Result(
    Ended.STOPPED,
    "it stopped",
    (Step(EffectKind.CALL, "charge", "k", StepFate.CALLED, "would be called now", "hl_1", "ab"),),
    (Write("accounts", 1, 2, 3),),
    run=2,
)


async def finished(store: Store, key: str = "evt_1") -> EventRow:
    """A processed event with an effect that is done."""
    owner = await claimed(store, key)
    transaction = store.transaction()
    await transaction.once(intent(owner, key, kind=EffectKind.ONCE))
    await transaction.commit([way_out(owner, "complete")])
    return await event(store, owner.id)


async def ask(store: Store, row: EventRow, *repeat: Effect, patience: float = 10.0) -> UUID:
    return await store.rehearsals.ask(row.id, row.state, row.claim, repeat, "ada", "why", patience=patience)


async def test_asked_taken_and_done(store: Store) -> None:  # proves R45
    row = await finished(store)
    [known] = (await history(store, row.id)).effects
    ident = await ask(store, row, known.effect)
    assert await store.rehearsals.asked() == [(ident, KIND)]
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert (found.state, found.result, found.worker) == (RehearsalState.ASKED, None, None)
    taken = await store.rehearsals.take(ident, "w", 60.0)
    assert taken is not None
    assert (taken.state, taken.worker, taken.event_id) == (RehearsalState.RUNNING, "w", row.id)
    assert taken.repeat == (known.effect.identity.hex(),)
    assert await store.rehearsals.asked() == []
    assert await store.rehearsals.finish(ident, "w", FOUND)
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert (found.state, found.result, found.ended, found.words) == (
        RehearsalState.DONE, FOUND, Ended.STOPPED, "it stopped"
    )  # fmt: skip
    assert not await store.rehearsals.finish(ident, "w", FOUND), "over is over"


async def test_it_is_audited_and_changes_nothing(store: Store, raw: Raw) -> None:  # proves R44, R45
    row, tables = await finished(store), ("events", "attempts", "effects", "effect_calls", "deliveries")
    before = [await raw.all(table) for table in tables]
    ident = await ask(store, row)
    assert [await raw.all(table) for table in tables] == before
    [action] = (await history(store, row.id)).actions
    assert (action.name, action.actor, action.reason) == ("rehearse", "ada", "why")
    assert action.subject == f"rehearsal {ident}"
    assert action.from_state == action.to_state == row.state


async def test_one_worker_gets_it(store: Store, open_store: OpenStore) -> None:  # proves R45
    ident = await ask(store, await finished(store))
    stores = [store, *[await open_store() for _ in range(3)]]
    taken = await asyncio.gather(*(s.rehearsals.take(ident, f"w{n}", 60.0) for n, s in enumerate(stores)))
    assert len(list(filter(None, taken))) == 1


async def test_nobody_takes_it_in_time(store: Store, clock: Clock) -> None:  # proves R45
    ident = await ask(store, await finished(store), patience=10.0)
    clock.offset += 9
    await store.rehearsals.lapse()
    assert len(await store.rehearsals.asked()) == 1
    clock.offset += 2
    assert await store.rehearsals.asked() == []
    assert await store.rehearsals.take(ident, "w", 60.0) is None, "nobody waits for it any more"
    await store.rehearsals.lapse()
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert (found.state, found.result) == (RehearsalState.EXPIRED, NOBODY)
    assert await store.rehearsals.take(ident, "w", 60.0) is None


async def test_a_worker_that_died(store: Store, clock: Clock) -> None:  # proves R45
    ident = await ask(store, await finished(store))
    assert await store.rehearsals.take(ident, "w", 40.0)
    clock.offset += 39
    await store.rehearsals.lapse()
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert found.state is RehearsalState.RUNNING, "its request has expired, its lease has not"
    clock.offset += 2
    await store.rehearsals.lapse()
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert (found.state, found.result, found.worker) == (RehearsalState.FAILED, DIED, "w")
    assert not await store.rehearsals.finish(ident, "w", FOUND), "what it says now comes too late"
    assert await store.rehearsals.get(ident) == found


async def test_only_who_took_it_may_finish_it(store: Store) -> None:  # proves R45
    ident = await ask(store, await finished(store))
    assert not await store.rehearsals.finish(ident, "w", FOUND)
    await store.rehearsals.take(ident, "w", 60.0)
    assert not await store.rehearsals.finish(ident, "another", FOUND)
    assert await store.rehearsals.finish(ident, "w", FOUND, failed=True)
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert found.state is RehearsalState.FAILED


async def test_what_cannot_be_asked_for(store: Store, raw: Raw) -> None:  # proves R44, R45
    pending = await event(store, await recorded(store, "waits", type="other"))
    with pytest.raises(WrongState, match="only discarded, failed, needs_review, processed, skipped can be replayed"):
        await ask(store, pending)
    row, other = await finished(store), await finished(store, "evt_2")
    [known] = (await history(store, other.id)).effects
    with pytest.raises(WrongState, match="another event's"):
        await ask(store, row, known.effect)
    await store.replay(row.id, row.state, "bob", "first", seen=row.claim)
    with pytest.raises(WrongState, match=r"is pending now, in run 2.*replay by bob"):
        await ask(store, row)
    assert await raw.count("rehearsals") == 0
    assert [action.name for action in (await history(store, row.id)).actions] == ["replay"]


async def test_the_last_hundred_stay(store: Store, raw: Raw, clock: Clock) -> None:  # proves R45
    row = await finished(store)
    first = await ask(store, row, patience=1e6)  # is never over
    others = [await ask(store, row, patience=1.0) for _ in range(KEPT + 5)]
    clock.offset += 2
    await store.rehearsals.lapse()
    last = await ask(store, row)
    assert await raw.count("rehearsals") == KEPT + 1
    assert await store.rehearsals.get(first) is not None
    assert await store.rehearsals.get(last) is not None
    assert await store.rehearsals.get(others[-1]) is not None
    assert await store.rehearsals.get(others[0]) is None


async def test_a_long_result_is_cut(store: Store) -> None:  # proves R45
    ident = await ask(store, await finished(store))
    await store.rehearsals.take(ident, "w", 60.0)
    step = Step(EffectKind.ONCE, "n" * 255, "\N{SNOWMAN}\0" * 127, StepFate.HAPPENS, "is true")
    long = Result(Ended.PROCESSED, "fine", (step,) * 1000, (Write("t", 1),) * 5000)
    assert len(long.kept()) <= MAX_RESULT
    assert await store.rehearsals.finish(ident, "w", long)
    found = await store.rehearsals.get(ident)
    assert found is not None
    assert found.result is not None
    assert 0 < len(found.result.steps) < 1000
    assert "are kept" in found.words


REHEARSAL = {
    "id": "ID", "event_id": "ID", "source": "'s'", "type": "'t'", "actor": "'a'", "reason": "'r'", "repeat": "'[]'",
    "asked_at": "NOW", "expires_at": "LATER",
}  # fmt: skip
TAKEN = {"worker": "'w'", "started_at": "NOW"}
OVER = {"finished_at": "NOW", "result": "'{}'"}
POSSIBLE: dict[str, dict[str, str]] = {
    "asked": {},
    "running": TAKEN | {"leased_until": "NOW"},
    "done": TAKEN | OVER,
    "failed": TAKEN | OVER,
    "expired": OVER,
}
MORE = TAKEN | OVER | {"leased_until": "NOW"}


def rehearsal(state: str, values: dict[str, str]) -> dict[str, str]:
    return REHEARSAL | {"state": f"'{state}'"} | values


async def test_only_possible_rows(raw: Raw) -> None:  # proves R45
    assert list(POSSIBLE) == list(RehearsalState)
    for state, needs in POSSIBLE.items():
        assert await accepted_in(raw, "rehearsals", rehearsal(state, needs)), state
        for name, value in MORE.items():
            other = needs | {name: "NULL" if name in needs else value}
            assert not await accepted_in(raw, "rehearsals", rehearsal(state, other)), (state, name)
    for wrong in ({"state": "'other'"}, {"actor": "''"}, {"reason": "''"}, {"expires_at": "NOW"}, {"repeat": "NULL"}):
        assert not await accepted_in(raw, "rehearsals", rehearsal("asked", wrong)), wrong


async def test_kinds_are_told(store: Store) -> None:  # proves R45
    ident = await ask(store, await finished(store))
    [(found, kind)] = await store.rehearsals.asked()
    assert (found, kind) == (ident, Kind("stripe", "invoice.paid"))
