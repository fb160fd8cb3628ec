"""The outbox as a worker runs it, on each store: what it does with entries that it cannot perform or settle."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from hookledger import Op, RetryPolicy, Seconds
from hookledger.clock import Clock
from hookledger.effects.caller import Calls
from hookledger.effects.circuit import Breakers, CircuitSettings
from hookledger.effects.declare import EffectDecorators, Effects
from hookledger.effects.outbox import Outbox, OutboxSettings
from hookledger.errors import Unavailable
from hookledger.states import EffectState, Repeat
from hookledger.store.ledger import Ledger
from hookledger.store.protocol import Store
from tests.builders import claimed, event
from tests.ledger import LATER, calls, finish, get, reach, take

QUICK = RetryPolicy(attempts=20, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))


def outbox_of(store: Store, ledger: Ledger, effects: Effects) -> Outbox:
    breakers = Breakers(store.circuits, CircuitSettings(failures=100_000))
    return Outbox(ledger, effects, Calls(ledger, breakers, "w"), breakers, OutboxSettings(), "w")


class Away:
    """A ledger that cannot be reached for some of its steps."""

    def __init__(self, ledger: Ledger, *steps: str) -> None:
        self._ledger = ledger
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        if name in self._steps:
            return self._fail
        return getattr(self._ledger, name)

    async def _fail(self, *_: Any) -> None:
        raise Unavailable("the database is away")


@pytest.mark.parametrize("step", ["conclude", "put_off", "restart", "get"])
async def test_an_outage_while_settling_is_no_internal_error(
    store: Store, clock: Clock, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    declare = EffectDecorators()

    @declare.effect(repeat="never" if step == "put_off" else "safe", name="charge", retry=QUICK)
    async def charge(op: Op, amount: int) -> None:
        raise AssertionError("never called")

    if step in ("conclude", "get"):

        @charge.check
        async def found(op: Op, amount: int) -> bool | None:
            return True if step == "conclude" else None

    known = await reach(store, clock, await claimed(store), EffectState.STARTED, LATER)
    await finish(store, known.identity, 1, "unknown", error="time-out", due_in=0.0)
    caplog.set_level(logging.WARNING, "hookledger")
    await outbox_of(store, cast(Ledger, Away(store.ledger, step)), declare.effects).drain()
    said = [(record.levelname, record.exc_info is not None) for record in caplog.records]
    assert said == [("WARNING", False)], caplog.text
    assert "the database is away" in caplog.text
    after = await get(store, known.identity)
    assert (after.state, after.due_at) == (EffectState.UNKNOWN, None)
    assert after.leased_until is not None, "the next try is when its lease has run out"


# ── another version of its function ──────────────────────────────────────────


def version(number: int, performed: list[Any]) -> Effects:
    declare = EffectDecorators()
    if number == 1:

        @declare.effect(repeat="safe", name="charge", retry=QUICK)
        async def charge(op: Op, amount: int) -> None:
            performed.append((op.call, amount))
    else:

        @declare.effect(repeat="safe", name="charge", retry=QUICK)
        async def charge_in(op: Op, amount: int, currency: str) -> None:
            performed.append((op.call, amount, currency))

    return declare.effects


@pytest.mark.parametrize("state", [EffectState.PLANNED, EffectState.UNKNOWN])
async def test_an_entry_waits_for_a_worker_that_knows_its_arguments(
    store: Store, clock: Clock, state: EffectState
) -> None:
    owner = await claimed(store)
    known = await reach(
        store, clock, owner, EffectState.STARTED if state is EffectState.UNKNOWN else state, LATER, repeat=Repeat.SAFE
    )
    if state is EffectState.UNKNOWN:
        await finish(store, known.identity, 1, "unknown", error="time-out", due_in=0.0)
    before = await get(store, known.identity)
    performed: list[Any] = []
    for _ in range(30):  # more often than its retry policy has tries
        await outbox_of(store, store.ledger, version(2, performed)).drain()
        after = await get(store, known.identity)
        assert (after.state, after.number, after.tries) == (state, before.number, before.tries)
        assert after.error is not None
        assert after.error.startswith("waits for a worker that knows its arguments: ")
        assert "currency" in after.error
        assert after.due_at is not None
        assert after.leased_until is None
        assert await take(store) == [], "not before its time"
        clock.offset += 601
    assert (await event(store, owner.id)).attention == (state is EffectState.UNKNOWN)
    assert len(await calls(store, after)) == before.number
    assert (await store.consistency.report()).imbalances == ()
    told = await store.consistency.unperformable()
    assert told is not None
    assert (told.count, told.sample) == (1, (f"{owner.id} charge:k",))

    await outbox_of(store, store.ledger, version(1, performed)).drain()
    assert performed == [(before.number + 1, 1)]
    assert (await get(store, known.identity)).state is EffectState.DONE
    assert await store.consistency.unperformable() is None
