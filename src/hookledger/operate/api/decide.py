"""Deciding about events and effects. Each names what the decision was made on, and is refused when that changed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from ...errors import WrongState
from ...ledger import Effect
from ...model import EventRow
from ...states import EffectState, State
from .call import Asked, Count, Nothing, Reason, Text
from .views import EffectView, effect_of, effect_view, fingerprint


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """The event as it was when the decision was made."""

    state: State
    claim: Count


class ExpectedReplay(Struct, frozen=True, forbid_unknown_fields=True):
    """The event as it was, and the preview if one was looked at."""

    state: State
    claim: Count
    preview: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None
    """The `fingerprint` of the preview: a replay that would do something else is refused."""


class ExpectedEffect(Struct, frozen=True, forbid_unknown_fields=True):
    """The effect as it was when the decision was made."""

    state: EffectState
    fence: Count


class Decision(Struct, frozen=True, forbid_unknown_fields=True):
    """What to decide an event on."""

    reason: Reason
    expected: Expected


class Replay(Struct, frozen=True, forbid_unknown_fields=True):
    """What to replay an event on."""

    reason: Reason
    expected: ExpectedReplay
    repeat_effects: Annotated[list[Text], Meta(max_length=50)] = []
    """Effects to be done once more though they are done, each a decision of its own: NAME, NAME:KEY, or an
    idempotency key."""


class Resolution(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody found out about an effect."""

    decision: Literal["happened", "did_not_happen", "cancel"]
    reason: Reason
    expected: ExpectedEffect
    result: Any = UNSET
    """With `happened`: what the call would have returned; needed where the handler reads it."""


class Resolved(Struct, frozen=True):
    effect: EffectView
    event: EventRow


async def _as_seen(asked: Asked[Nothing, Decision]) -> EventRow:
    """The event as the caller says that it was; what it is now, the store compares when it acts."""
    event = (await asked.insight.event(asked.path["reference"])).event
    return msgspec.structs.replace(event, state=asked.body.expected.state, claim=asked.body.expected.claim)


async def retry_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Send a failed, retrying or reviewed event round again now, with a fresh budget."""
    return (await asked.actions.retry(await _as_seen(asked), asked.body.reason)).event


async def discard_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Close an event that is pending, retrying, failed or in review. Its effects stay as they are."""
    return (await asked.actions.discard(await _as_seen(asked), asked.body.reason)).event


async def replay_event(asked: Asked[Nothing, Replay]) -> EventRow:
    """Process an event again, as a new run: what is done is skipped. Refused while something is to be decided."""
    wanted, repeat = asked.body.expected, asked.body.repeat_effects
    history = await asked.insight.event(asked.path["reference"])
    seen = msgspec.structs.replace(history.event, state=wanted.state, claim=wanted.claim)
    shown = None
    if wanted.preview is not None:
        shown = asked.insight.preview(history, asked.insight.repeated(history, repeat))
        if fingerprint(shown) != wanted.preview:
            raise WrongState(f"event {seen.id} is not what the preview showed any more. A replay now: {shown.words}")
    return (await asked.actions.replay(seen, asked.body.reason, repeat, shown=shown)).event


async def as_expected(asked: Asked[Any, Any], expected: ExpectedEffect) -> Effect:
    """The effect that the path names; WrongState unless it is as it was when the decision was made."""
    effect = await asked.insight.effect(asked.path["reference"], asked.path["effect"])
    if (effect.state, effect.fence) != (expected.state, expected.fence):
        raise WrongState(
            f"effect {effect.name}:{effect.key} changed meanwhile: it is {effect.state}, with fence {effect.fence}"
        )
    return effect


async def resolve_effect(asked: Asked[Nothing, Resolution]) -> Resolved:
    """Decide about an effect when nobody knows whether it happened, or when it failed: NAME, NAME:KEY, or its
    idempotency key. The event, or the outbox, goes on from there."""
    given = asked.body
    effect = await as_expected(asked, given.expected)
    history = await asked.actions.resolve(effect, given.decision, given.reason, given.result)
    return Resolved(effect_view(effect_of(history, effect), complete=True), history.event)
