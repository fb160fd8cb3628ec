"""What both stores need to act on events: what may be repeated, and what to say when somebody was faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ..errors import WrongState
from ..ledger import Effect
from ..model import ActionRow
from ..states import BY_NAME, EffectKind, EffectState, State
from .ops.pruning import Tombstone

MADE_WAY = "repeated on purpose: it made way for a later run"
"""Why the row of a `once` is evidence only."""
ABSENT = "absent"
"""Where the row of a `once` goes that makes way: `event.once` finds none."""

DONE = {"retry": "retried", "replay": "replayed", "discard": "discarded"}


class Found(NamedTuple):
    """An event as it is now, and what was done to it last."""

    state: State
    run: int
    claim: int
    last: ActionRow | None
    emptied: bool = False


def in_order(repeat: Sequence[Effect], event_id: UUID) -> list[Effect]:
    """The effects that are to be repeated, in the order in which everyone locks them. Raises WrongState for one that
    is not this event's, or of which it is not settled that it is over.
    """
    for effect in repeat:
        label = f"effect {effect.name}:{effect.key}"
        if effect.event_id != event_id:
            raise WrongState(f"{label} is another event's: {effect.event_id}")
        if effect.superseded:
            raise WrongState(f"{label} made way for a later run already")
        if effect.alert is not None:
            raise WrongState(f"{label} has an alert that nobody has answered: hookledger resolve first")
        if effect.state not in (EffectState.DONE, EffectState.CANCELLED):
            first = ": hookledger resolve first" if effect.state is EffectState.UNKNOWN else ""
            raise WrongState(f"{label} is {effect.state}: only what is done or cancelled can be repeated{first}")
    return sorted({effect.identity: effect for effect in repeat}.values(), key=lambda effect: effect.identity)


def after_repeat(effect: Effect) -> str:
    """The state that the audit names."""
    return ABSENT if effect.kind is EffectKind.ONCE else EffectState.PLANNED.value


def refusal(
    event_id: UUID, name: str, expected: State, seen: int | None, found: Found | Tombstone | None
) -> WrongState:
    """Why a transition was not made, in words that tell the loser of a race what changed."""
    if found is None:
        return WrongState(f"there is no event {event_id}")
    if isinstance(found, Tombstone):
        return WrongState(found.words)
    if found.state is not expected or (seen is not None and found.claim != seen):
        again = " again" if found.state is expected else ""
        was = f"it is not {expected} any more" if not again else "it went round meanwhile"
        words = f"event {event_id} is {found.state}{again} now, in run {found.run}: {was}"
        return WrongState(words + last_action(found.last))
    if found.emptied and name != "discard":
        return WrongState(f"the bytes of event {event_id} were pruned or erased: there is nothing to process")
    allowed = ", ".join(sorted(state.value for state in BY_NAME[name].sources))
    return WrongState(f"event {event_id} is {found.state}: only {allowed} can be {DONE[name]}")


def last_action(last: ActionRow | None) -> str:
    """Who was faster, as a refusal ends."""
    if last is None:
        return ""
    return f". Last action: {last.name} by {last.actor} at {last.at:%Y-%m-%d %H:%M:%S} UTC ({last.reason})"


def stands(found: Found | Tombstone | None, expected: State, seen: int | None) -> bool:
    """Whether the event is as it was when the decision was made."""
    return isinstance(found, Found) and found.state is expected and seen in (None, found.claim)


def about(effect: Effect) -> str:
    """As the audit names it."""
    return f"{effect.name}:{effect.key}"


def changed(effect: Effect, now: Effect | None = None) -> WrongState:
    """`now`: what it is after that."""
    became = f": it was {effect.state}, and is {now.state}" if now is not None else ""
    return WrongState(f"effect {about(effect)} changed meanwhile{became}")
