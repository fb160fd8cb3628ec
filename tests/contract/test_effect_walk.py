"""Random walks over the ledger: every transition is in the table, and the books always balance."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.ledger import Completion, Effect, EffectHistory
from hookledger.model import Claimed, Kind
from hookledger.states import EFFECT_TRANSITIONS, CallOutcome, EffectKind, EffectState, Repeat, State
from hookledger.store.protocol import Store
from tests.builders import LEASE, Raw, claim, claimed, history, settle
from tests.ledger import CALL, LATER, intent
from tests.soak import amount

LEGAL = {(source, t.target) for t in EFFECT_TRANSITIONS for source in t.sources or [None]}
STEPS = 150


class Walk:
    """Two effects of each kind, and someone who does anything to them at any time."""

    def __init__(self, store: Store, clock: Clock, owner: Claimed, seed: int) -> None:
        self.store, self.clock, self.owner = store, clock, owner
        self.random = random.Random(seed)
        repeats = list(Repeat)
        self.intents = [
            intent(owner, f"{kind}-{n}", name=f"e{n}", kind=kind, repeat=self.random.choice(repeats))
            for kind in (CALL, LATER)
            for n in range(2)
        ]
        self.seen: dict[bytes, list[Effect]] = {i.identity: [] for i in self.intents}
        self.made: set[tuple[EffectState | None, EffectState]] = set()

    def old(self, identity: bytes) -> Effect | None:
        """How it is, or how it was when somebody looked last."""
        views = self.seen[identity]
        return self.random.choice(views[-2:]) if views else None

    async def step(self) -> None:
        ledger = self.store.ledger
        chosen = self.random.choice(self.intents)
        known = self.old(chosen.identity)
        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: ledger.claim("w", [("e0", 1, LEASE), ("e1", 1, LEASE)]),
        ]
        if chosen.kind is CALL:
            steps.append(lambda: ledger.start([chosen], "w"))
        elif known is None or known.kind is CALL:  # an outbox entry that is to be repeated waits to be asked for
            steps += [lambda: self._plan(chosen)] * (1 if known is None else 4)
        due_in = self.random.choice([None, 0.0, 5.0])
        if known is not None:
            steps += [
                lambda: ledger.restart(known, "w", LEASE),
                lambda: ledger.mark_unknown(known, due_in),
                lambda: ledger.conclude(known, self.random.random() < 0.3, b"1", due_in),
                lambda: ledger.put_off(known, due_in, "later"),
                lambda: self._resolve(known),
                lambda: self._try(known),
                lambda: self._repeat(known),
            ]
            if known.number:
                number = self.random.randint(max(1, known.number - 2), known.number)
                outcome = self.random.choice([CallOutcome.REFUSED, *CallOutcome])
                steps += [
                    lambda: ledger.finish([Completion(chosen.identity, number, outcome, b"2", "e", due_in)])
                ] * 4
        await self.random.choice(steps)()
        if self.random.random() < 0.2:
            self.clock.offset += self.random.choice([1.0, 10.0, LEASE + 1])

    async def _plan(self, chosen: object) -> None:
        transaction = self.store.transaction()
        await transaction.plan(chosen)  # type: ignore[arg-type]
        await transaction.commit([])

    async def _resolve(self, known: Effect) -> None:
        decision = self.random.choice(["happened", "did_not_happen", "did_not_happen", "cancel"])
        with suppress(WrongState):
            await self.store.ledger.resolve(known, decision, None, "ada", "because")

    async def _try(self, known: Effect) -> None:
        with suppress(WrongState):
            await self.store.ledger.try_now(known, "ada", "because")

    async def _repeat(self, known: Effect) -> None:
        """The event fails, and an operator replays it with this effect once more, or without."""
        assert await settle(self.store, self.owner, "fail")
        try:
            await self.store.replay(self.owner.id, State.FAILED, "ada", "because", repeat=[known])
        except WrongState:
            await self.store.replay(self.owner.id, State.FAILED, "ada", "because")
        self.owner = await claim(self.store, Kind(self.owner.source, self.owner.type))
        self.intents = [msgspec.structs.replace(i, claim=self.owner.claim) for i in self.intents]

    async def check(self) -> None:
        found = await history(self.store, self.owner.id)
        for told in found.effects:
            self._one(told)
        assert found.event.attention == any(_needs_a_person(told.effect) for told in found.effects)

    def _one(self, told: EffectHistory) -> None:
        effect, views = told.effect, self.seen[told.effect.identity]
        before = views[-1] if views else None
        if before is None or before.fence != effect.fence:
            views.append(effect)
            was = before.state if before else None
            if was is not effect.state:
                self.made.add((was, effect.state))
                assert (was, effect.state) in LEGAL
        else:
            assert before.state is effect.state, "no change without a new fence"
            assert (before.due_at, before.leased_until, before.alert) == (
                effect.due_at,
                effect.leased_until,
                effect.alert,
            )
            views[-1] = effect
        assert [call.number for call in told.calls] == list(range(1, effect.number + 1)), "each call has its row"
        generations = [call.generation for call in told.calls]
        assert generations == sorted(generations)
        assert not generations or generations[-1] <= effect.generation
        present = [call for call in told.calls if call.generation == effect.generation]
        done = [call for call in present if call.outcome is CallOutcome.DONE]
        if done:
            assert effect.state in (EffectState.DONE, EffectState.CANCELLED, EffectState.STARTED)
        if effect.state is EffectState.STARTED:
            assert told.calls[-1].outcome is None, "the newest call is the one under way"


def _needs_a_person(effect: Effect) -> bool:
    if effect.alert is not None or effect.state is EffectState.UNKNOWN:
        return True
    return effect.kind is EffectKind.LATER and effect.state is EffectState.FAILED


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(amount(1, 4, 20)))
async def test_anything_at_any_time(store: Store, clock: Clock, seed: int) -> None:
    walk = Walk(store, clock, await claimed(store), seed)
    for _ in range(STEPS):
        await walk.step()
        await walk.check()


async def test_the_walks_go_everywhere(store: Store, clock: Clock, raw: Raw) -> None:
    """One long walk makes nearly every transition: the checks above were not idle."""
    made: set[tuple[EffectState | None, EffectState]] = set()
    for seed in range(100, 104):
        owner = await claimed(store, f"evt_{seed}", type=f"t{seed}")
        walk = Walk(store, clock, owner, seed)
        for _ in range(STEPS):
            await walk.step()
            await walk.check()
        made |= walk.made
        await raw.run("DELETE FROM effects")
        await raw.run("DELETE FROM effect_calls")
    assert len(made) >= 12, sorted(map(str, made))
