"""Decides what the end of a call, or an operator's decision, means for its effect.

Pure: both stores lock the effect, record how the call ended, read its calls, and then ask here. What a call says is
recorded whatever becomes of it, so nothing here can erase evidence; evidence beats a decision, and if the two
contradict each other, an alert tells the operator.

An effect becomes unknown in two ways: its call ended so (here), or the process died during the call and the lease
expired (`mark_unknown` in `ledger.py`: called by `work/reclaim.py`, and by the next attempt if that comes first). A
generation counts deliberate repetitions, and each gets a new idempotency key; the fence changes with each change of
the effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from ..errors import WrongState
from ..ids import effect_identity
from ..ledger import Completion, Effect, Intent, Known
from ..states import CallOutcome, EffectKind, EffectState, Repeat

MAX_REASON = 500
"""What is kept of an event's reason."""


class Standing(NamedTuple):
    """An effect as far as its calls are concerned."""

    kind: EffectKind
    repeat: Repeat | None
    state: EffectState
    number: int
    decided: str | None = None
    """`happened` or `did_not_happen`, by its check or by an operator."""
    decided_number: int | None = None
    """The newest call that the decision was about."""
    result: bytes | None = None

    def denied(self, number: int) -> bool:
        """Whether it was decided that this call had not happened: its outcome is known."""
        return self.decided == "did_not_happen" and number <= (self.decided_number or 0)


class CallEnd(NamedTuple):
    """One call of the effect's present generation, and how it is known to have ended."""

    number: int
    outcome: CallOutcome | None


class Move(NamedTuple):
    """What changes in the effect. One that stays `started` keeps its lease; every other loses it."""

    state: EffectState
    result: bytes | None = None
    """Kept if there is none yet."""
    due_in: float | None = None
    error: str | None = None
    alert: str | None = None
    """A new alert for operators, besides earlier ones."""


def apply_outcome(effect: Standing, calls: Iterable[CallEnd], completion: Completion, at: datetime) -> Move | None:
    """Where a call that ended at this moment takes its effect; None: nowhere. `calls` include the one that ended."""
    others = [call for call in calls if call.number != completion.number]
    present = effect.state is EffectState.STARTED and effect.number == completion.number
    any_done = any(call.outcome is CallOutcome.DONE for call in others)
    any_unknown = any(
        call.outcome in (None, CallOutcome.UNKNOWN) and not effect.denied(call.number) for call in others
    )
    match completion.outcome:
        case CallOutcome.DONE:
            return _done(effect, present, completion, at)
        case CallOutcome.REFUSED:
            return _refused(effect, present, any_done, any_unknown, completion, at)
        case CallOutcome.UNKNOWN if present and any_done:
            return Move(EffectState.DONE)
        case CallOutcome.UNKNOWN if present:
            return Move(EffectState.UNKNOWN, due_in=completion.due_in, error=completion.error)
    return None


def _done(effect: Standing, present: bool, completion: Completion, at: datetime) -> Move | None:
    news = f"call {completion.number} came back done at {at:%Y-%m-%d %H:%M:%S} UTC"
    denied = effect.denied(completion.number)
    against = f"{news}, after it was decided that it had not happened"
    alert: str | None = None
    state = EffectState.DONE
    match effect.state:
        case EffectState.STARTED if not present:
            # The newer call will find this one done, however it ends itself.
            state = EffectState.STARTED
            if denied:
                alert = f"{against}, while call {effect.number} is in progress: it may be done twice"
        case EffectState.UNKNOWN if denied:
            alert = f"{against}, and the outcome of call {effect.number} is unknown: it may have been done twice"
        case EffectState.PLANNED:
            alert = f"{against if denied else news}: it is not done again"
        case EffectState.FAILED:
            alert = f"{against if denied else news}, and a later try failed: it is done"
        case EffectState.CANCELLED:
            state = EffectState.CANCELLED
            alert = f"{news}, after it was cancelled: it was done all the same"
        case EffectState.DONE if denied:
            alert = f"{against}, and it was done again since: it may have been done twice"
        case EffectState.DONE if effect.decided == "happened":
            if effect.result is not None or completion.result is None:
                return None
        case EffectState.DONE if effect.repeat is Repeat.NEVER:
            alert = f"{news}, and it was done already: it may have been done twice"
        case EffectState.DONE:
            return None  # a repetition that its policy allows
    return Move(state, result=completion.result, error=completion.error, alert=alert)


def _refused(
    effect: Standing, present: bool, any_done: bool, any_unknown: bool, completion: Completion, at: datetime
) -> Move | None:
    error = completion.error
    if present or effect.state is EffectState.UNKNOWN:
        if any_done:
            return Move(EffectState.DONE)
        if any_unknown:
            return Move(EffectState.UNKNOWN, due_in=completion.due_in, error=error) if present else None
        if effect.kind is EffectKind.CALL:
            return Move(EffectState.FAILED, error=error)
        # The same whether the call was known to be late before or not: in an outage either is written first.
        state = EffectState.FAILED if completion.due_in is None else EffectState.PLANNED
        return Move(state, due_in=completion.due_in, error=error)
    if effect.state is EffectState.DONE and effect.decided == "happened" and not any_done and not any_unknown:
        alert = (
            f"call {completion.number} came back refused at {at:%Y-%m-%d %H:%M:%S} UTC, after it was decided that it "
            "had happened: it may not have been done at all"
        )
        return Move(EffectState.DONE, alert=alert)
    return None


def may_adopt(known: Known, intent: Intent) -> bool:
    """Whether the outbox may take over what a handler called before: it did not happen, and no worker performs it."""
    open_call = known.kind is EffectKind.CALL and known.state in (EffectState.PLANNED, EffectState.FAILED)
    return open_call and known.arguments_digest == intent.arguments_digest


def settles_unknown(before: Standing, after: EffectState) -> bool:
    """Whether an event may have waited for this. The outcome of a first call in progress was never unknown."""
    repeated = before.kind is EffectKind.CALL and before.state is EffectState.STARTED and before.number > 1
    return is_known(after) and (repeated or before.state is EffectState.UNKNOWN)


def is_known(state: EffectState) -> bool:
    """Whether it is known that it happened, or that it did not."""
    return state in (EffectState.DONE, EffectState.FAILED, EffectState.PLANNED)


class Settled(NamedTuple):
    """An effect of which it is known now whether it happened: events may have waited for it."""

    source: str | None
    """Of those events; None: of any source."""
    words: str
    """How the reason of those events begins."""
    reason: str
    """Why they are retried,"""
    actor: str = "hookledger"
    """and who did."""


def settled(identity: bytes, source: str, name: str, key: str, state: EffectState) -> Settled:
    shared = identity == effect_identity("", name, key)
    words = f"effect {name} {key!r} may have happened"[:MAX_REASON]
    return Settled(None if shared else source, words, f"what it waited for is known: {name}:{key} is {state}")


def calls_for_attention(before: Standing, after: Move) -> bool:
    """Whether the event's attention may be another after this."""
    marking = {EffectState.UNKNOWN, EffectState.FAILED}
    return bool(marking & {before.state, after.state}) or after.alert is not None


DECISIONS = ("happened", "did_not_happen", "cancel")

_FROM = {
    "happened": {EffectState.UNKNOWN, EffectState.FAILED, EffectState.PLANNED},
    "did_not_happen": {EffectState.UNKNOWN, EffectState.FAILED},
    "cancel": {EffectState.PLANNED, EffectState.FAILED},
}
_TO = {
    "happened": EffectState.DONE,
    "did_not_happen": EffectState.PLANNED,
    "cancel": EffectState.CANCELLED,
}
# An operator who has read the alert decides.
_ACKNOWLEDGED = {
    (EffectState.DONE, "happened"): EffectState.DONE,
    (EffectState.DONE, "did_not_happen"): EffectState.DONE,
    (EffectState.CANCELLED, "happened"): EffectState.DONE,
    (EffectState.CANCELLED, "cancel"): EffectState.CANCELLED,
}


def decide(effect: Effect, decision: str, result: bytes | None = None) -> EffectState:
    """Return the state that an operator's decision leads to. Raises WrongState where there is nothing to decide."""
    if decision == "did_not_happen" and effect.kind is EffectKind.LATER and not effect.arguments:
        label = f"{effect.name}:{effect.key}"
        raise WrongState(f"the arguments of effect {label} were erased: it cannot be done again")
    if decision not in DECISIONS:
        raise ValueError(f"a decision is one of {', '.join(DECISIONS)}, not {decision!r}")
    if effect.state is EffectState.STARTED:
        raise WrongState(f"effect {effect.name}:{effect.key}: a call is in progress; wait for its end")
    only_said = effect.decided == "happened" and not effect.called_done
    if effect.state is EffectState.DONE and effect.alert is not None and decision == "did_not_happen" and only_said:
        return EffectState.PLANNED  # every call was refused: what was decided was wrong
    if effect.alert is not None and (effect.state, decision) in _ACKNOWLEDGED:
        return _ACKNOWLEDGED[effect.state, decision]
    if effect.state is EffectState.DONE and decision == "happened" and _may_give(effect, result):
        return EffectState.DONE
    if effect.state not in _FROM[decision]:
        raise WrongState(f"effect {effect.name}:{effect.key} is {effect.state}: nothing to decide")
    if decision == "cancel" and effect.kind is not EffectKind.LATER:
        raise WrongState(f"effect {effect.name}:{effect.key} is a call of its handler: discard the event instead")
    return _TO[decision]


def check_try(effect: Effect) -> None:
    """Raise WrongState, with what to do instead, for an effect that the outbox may not continue now."""
    label = f"effect {effect.name}:{effect.key}"
    where = f"{effect.event_id} {effect.name}:{effect.key}"
    if effect.state in (EffectState.DONE, EffectState.CANCELLED):
        again = f"hookledger replay {effect.event_id} --repeat-effect {effect.name}:{effect.key}"
        raise WrongState(f"{label} is {effect.state}: nothing is left to try; to do it once more, {again}")
    if effect.kind is not EffectKind.LATER:
        raise WrongState(f"{label} is a call of its handler: run that again with hookledger retry {effect.event_id}")
    if effect.state is EffectState.STARTED or effect.leased_until is not None:
        raise WrongState(f"{label} is {effect.state}: a worker is performing it now; wait for the end of the call")
    if effect.state is EffectState.UNKNOWN and effect.due_at is None and effect.repeat is Repeat.NEVER:
        raise WrongState(
            f"{label} may have happened: its policy is never, so it is not repeated; find out, then hookledger "
            f"resolve {where} --happened or --did-not-happen"
        )
    if not effect.arguments:
        raise WrongState(f"{label} cannot be done: its arguments were erased; hookledger resolve {where} --cancel")


def replaced(effect: Effect, target: EffectState, result: bytes | None) -> bytes | None:
    """Return the recorded result that a decision removes or changes; it stays in the audit log."""
    kept = (result or effect.result) if target is EffectState.DONE else None
    return None if kept == effect.result else effect.result


def _may_give(effect: Effect, result: bytes | None) -> bool:
    """Whether a result can be given later: its handler may wait for it, or was given a wrong one."""
    if result is None or effect.kind is EffectKind.ONCE:
        return False
    return effect.result is None or effect.decided == "happened"
