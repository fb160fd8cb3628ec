"""Answers the effects that a rehearsed handler asks for from the ledger, and writes down what a run would do.

Nothing is called, planned or done here. Where the ledger has no answer, the rehearsal stops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from ..errors import ChangedArguments, Review
from ..identities import operation_key
from ..ledger import Effect as Entry
from ..ledger import Intent, Known
from ..rehearsals import Step, StepFate, Write
from ..states import EffectKind, EffectState, Repeat
from ..store.ledger import Ledger
from ..store.rehearsals import RehearsalTransaction
from .circuit import Breakers
from .effect import Effect
from .ledger import recorded, under_way


class Stopped(BaseException):
    """Ends the handler at an effect without an answer. No Exception: a handler that catches those must not go on."""


class Answers:
    """Stands for the transaction's effects and for the calls of one attempt. `repeat`: identities of effects that
    count as not done.
    """

    exclusive = False

    def __init__(
        self, ledger: Ledger, breakers: Breakers, tx: RehearsalTransaction, repeat: Collection[bytes]
    ) -> None:
        self._ledger = ledger
        self._breakers = breakers
        self._tx = tx
        self._repeat = repeat
        self._planned: dict[bytes, Known] = {}
        self.steps: list[Step] = []
        self.stop: Step | None = None
        """Where it was stopped,"""
        self.until_there: tuple[Write, ...] | None = None
        """and what had been written."""

    # ── in the transaction ──

    async def once(self, intent: Intent) -> bool:
        self._go_on()
        first = await self._tx.once(intent)
        fate = StepFate.HAPPENS if first else StepFate.DONE
        self._note(intent, fate, "is true: what follows would be done" if first else "is done, and false")
        return first

    async def plan(self, intent: Intent) -> Known | None:
        self._go_on()
        if intent.identity in self._planned:
            self._note(intent, StepFate.STAYS, "was asked for by this very run")
            return self._planned[intent.identity]
        known = await self._tx.plan(intent)
        entry = await self._entry(intent)
        if known is None:
            self._note(intent, StepFate.PLANNED, "would be left to the outbox, with the commit", entry)
            self._planned[intent.identity] = Known(EffectKind.LATER, EffectState.PLANNED, intent.arguments_digest)
        else:
            self._note(intent, *_left(known, intent), entry)
        return known

    # ── calls ──

    async def call(self, effect: Effect[Any, Any], intent: Intent, owns: Callable[[], bool]) -> Any:
        """The recorded result, or what a run would raise; else the end of the rehearsal."""
        del owns
        self._go_on()
        await self._breakers.refresh()
        known = await self._entry(intent)
        done = known is not None and known.state is EffectState.DONE
        if not done and not self._breakers.closed(effect.policy.downstream):
            raise await self._halt(intent, StepFate.WAITS, f"has to wait: {_open(self._breakers, effect)}", known)
        if known is None:
            raise await self._halt(intent, *_called(effect, "for the first time"), None)
        if known.arguments_digest != intent.arguments_digest:
            self._note(intent, StepFate.UNDECIDED, "was asked for before with other arguments", known)
            raise ChangedArguments(f"effect {known.name} {known.key!r} was asked for before with other arguments")
        if done:
            self._note(intent, StepFate.DONE, "is done: its recorded result is given", known)
            return recorded(effect, known)
        if known.state is EffectState.CANCELLED:
            self._note(intent, StepFate.UNDECIDED, "was cancelled by an operator", known)
            raise Review(f"effect {known.name} {known.key!r} was cancelled by an operator")
        raise await self._halt(intent, *_unanswered(effect, known), known)

    async def _entry(self, intent: Intent) -> Entry | None:
        """What is known; of what is to be repeated, as the replay would make it."""
        known = await self._ledger.get(intent.identity)
        if known is None or known.identity not in self._repeat:
            return known
        again = known.state is EffectState.DONE or known.called_done
        return msgspec.structs.replace(
            known,
            kind=EffectKind.CALL,
            state=EffectState.PLANNED,
            generation=known.generation + (1 if again else 0),
            due_at=None,
            lease_left=0.0,
        )

    # ── what is written down ──

    def _go_on(self) -> None:
        """What comes after the stop is not known, whoever goes on."""
        if self.stop is not None:
            raise Stopped

    def _note(self, intent: Intent, fate: StepFate, why: str, known: Entry | None = None) -> Step:
        is_call = intent.kind is not EffectKind.ONCE
        step = Step(
            intent.kind,
            intent.name,
            intent.key,
            fate,
            why,
            operation_key(intent.identity, known.generation if known else 1) if is_call else None,
            intent.arguments_digest.hex() if is_call else None,
        )
        if self.stop is None:
            self.steps.append(step)
        return step

    async def _halt(self, intent: Intent, fate: StepFate, why: str, known: Entry | None) -> Stopped:
        self._go_on()
        self.stop = self._note(intent, fate, why, known)
        self.until_there = await self._tx.writes()
        return Stopped()


def _left(known: Known, intent: Intent) -> tuple[StepFate, str]:
    """What asking for it comes to, when the outbox cannot have it anew."""
    if known.arguments_digest != intent.arguments_digest:
        return StepFate.UNDECIDED, "was asked for before with other arguments"
    if known.state is EffectState.DONE:
        return StepFate.DONE, "is done"
    if known.kind is EffectKind.CALL and known.state is EffectState.STARTED:
        return StepFate.WAITS, "is being called at this moment"
    if known.kind is EffectKind.CALL and known.state is EffectState.UNKNOWN:
        return StepFate.UNDECIDED, "may have happened: find out, then hookledger resolve"
    if known.state is EffectState.CANCELLED:
        return StepFate.STAYS, "was cancelled by an operator"
    return StepFate.STAYS, f"is the outbox's already: {known.state}"


def _open(breakers: Breakers, effect: Effect[Any, Any]) -> str:
    return str(breakers.refusal(effect.policy.downstream))


def _called(effect: Effect[Any, Any], when: str) -> tuple[StepFate, str]:
    if effect.policy.ask_first:
        return StepFate.CHECKED, f"is asked for {when}: its check would be asked, and decide"
    return StepFate.CALLED, f"would be called now, {when}"


def _unanswered(effect: Effect[Any, Any], known: Entry) -> tuple[StepFate, str]:
    """What a run would do about it now; see `Calls`."""
    if under_way(known):
        by = "the outbox" if known.kind is EffectKind.LATER else "another worker"
        return StepFate.WAITS, f"is under way, by {by}: the run would wait, or come back later"
    if known.state in (EffectState.STARTED, EffectState.UNKNOWN):
        if effect.checker is not None:
            return StepFate.CHECKED, "may have happened: its check would be asked, and decide"
        if effect.policy.may_repeat(known.doubtful_for):
            accepts = ", and it might be done twice" if effect.policy.repeat is Repeat.ACCEPT else ""
            words = f"may have happened, and would be called again, as its policy ({effect.policy.repeat}) allows"
            return StepFate.CALLED, words + accepts
        return StepFate.UNDECIDED, "may have happened, and must not be repeated: find out, then hookledger resolve"
    return _called(effect, "because it did not happen yet" if known.state is EffectState.FAILED else "as decided")
