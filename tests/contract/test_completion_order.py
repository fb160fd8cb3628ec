"""However the ends of calls are told, an effect ends as its policy says: on each store as in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookledger import Op, Permanent, Refused, RetryPolicy, Seconds
from hookledger.clock import Clock
from hookledger.effects import caller as calls_module
from hookledger.effects.caller import Calls
from hookledger.effects.circuit import Breakers, CircuitSettings
from hookledger.effects.declare import EffectDecorators
from hookledger.effects.outbox import Outbox, OutboxSettings
from hookledger.effects.perform import Ending
from hookledger.effects.policy import continue_after
from hookledger.errors import Unavailable
from hookledger.ledger import Completion, Concluded
from hookledger.states import CallOutcome, Repeat
from hookledger.store.ledger import Ledger
from hookledger.store.protocol import Store
from tests.builders import claimed
from tests.ledger import calls, get, plan
from tests.overruns import Script, check_end, declared
from tests.soak import amount

NUMBERS = itertools.count()
FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("repeat", list(Repeat))
@pytest.mark.soak
@settings(max_examples=amount(8, 15, 40), deadline=None, suppress_health_check=FIXTURES)
@given(data=st.data())
async def test_any_order_ends_as_the_policy_says(
    store: Store, clock: Clock, repeat: Repeat, data: st.DataObject
) -> None:
    number = next(NUMBERS)
    effect = declared(repeat, f"charge-{number}")
    owner = await claimed(store, f"evt_{number}", type=f"t{number}")
    [identity] = await plan(store, owner, "k", name=effect.name, repeat=repeat)

    def wait(seconds: float) -> None:
        clock.offset += seconds

    async def told() -> list[str | None]:
        return [outcome for _, outcome in await calls(store, await get(store, identity))]

    await Script(store.ledger, effect, identity, wait, told, data).run()


# ── with a worker ────────────────────────────────────────────────────────────

LATE = ("done", "refused", "gone", "reset")
TROUBLE = ("well", "slow", "down", "answer lost")


class Flaky:
    """A ledger whose `finish` goes as scripted, and well after that."""

    def __init__(self, ledger: Ledger, script: list[str]) -> None:
        self._ledger = ledger
        self._script = script

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def finish(self, completions: Sequence[Completion]) -> list[Concluded]:
        way = self._script.pop(0) if self._script else "well"
        if way == "down":
            raise Unavailable("the database is away")
        if way == "slow":
            await asyncio.sleep(0.02)
        concluded = await self._ledger.finish(completions)
        if way == "answer lost":
            raise Unavailable("the database went away")
        return concluded


class Overruns:
    """Declares one effect of each policy whose first call overruns, and ends as its key says."""

    def __init__(self, suffix: int) -> None:
        declare = EffectDecorators()
        self.effects = declare.effects
        self.made: Counter[tuple[str, str]] = Counter()
        retry = RetryPolicy(attempts=1000, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))
        for repeat in Repeat:
            window = "1d" if repeat is Repeat.KEYED else None
            name = f"{repeat.value}-{suffix}"
            declare.effect(repeat=repeat.value, window=window, name=name, timeout="10ms", grace="5s", retry=retry)(
                self._run
            )

    async def _run(self, op: Op) -> str:
        self.made[op.name, op.effect_key] += 1
        if self.made[op.name, op.effect_key] == 1:
            await asyncio.sleep(0.015)
            match op.effect_key:
                case "refused":
                    raise Refused("closed")
                case "gone":
                    raise Permanent("gone")
                case "reset":
                    raise ConnectionResetError
        return op.effect_key


@pytest.mark.soak
@settings(max_examples=amount(4, 8, 20), deadline=None, suppress_health_check=FIXTURES)
@given(script=st.lists(st.sampled_from(TROUBLE), max_size=16), restart=st.booleans())
async def test_outages_and_restarts_while_calls_overrun(
    store: Store, clock: Clock, script: list[str], restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "RETRY_PAUSE", 0.002)
    number = next(NUMBERS)
    overruns = Overruns(number)
    owner = await claimed(store, f"evt_{number}", type=f"t{number}")
    planned: list[bytes] = []
    for effect in overruns.effects.all():
        planned += await plan(store, owner, *LATE, name=effect.name, repeat=effect.policy.repeat, arguments=b"{}")

    async def work(*, killed: bool) -> None:
        ledger = cast(Ledger, Flaky(store.ledger, script))
        breakers = Breakers(store.circuits, CircuitSettings(failures=100_000))
        made = Calls(ledger, breakers, "w")
        outbox = Outbox(ledger, overruns.effects, made, breakers, OutboxSettings(), "w")
        if killed:
            performing = asyncio.create_task(outbox.drain())
            await asyncio.sleep(0.03)
            performing.cancel()
            await outbox.shut_down(0.0)
        else:
            await outbox.drain()
        await made.close(0.0 if killed else 30.0)

    if restart:
        await work(killed=True)
    for _ in range(20):
        await work(killed=False)
        clock.offset += 30.0
        for expired in await store.ledger.expired(100):
            known = overruns.effects.find(expired.name)
            assert known is not None
            await store.ledger.mark_unknown(expired, continue_after(known, expired, Ending(CallOutcome.UNKNOWN)))
        found = [await get(store, identity) for identity in planned]
        if not any(entry.due_at or entry.leased_until for entry in found):
            break
    for entry in found:
        check_end(entry, [outcome for _, outcome in await calls(store, entry)])
