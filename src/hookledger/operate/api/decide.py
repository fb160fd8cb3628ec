"""Decisions about events and effects. Each names the state it was based on; 409 if that has changed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from ...errors import WrongState
from ...ledger import Effect
from ...model import EventRow
from ...states import EffectState, State
from .. import decide, effects, search
from ..replay.replay import preview, replay
from .call import Asked, Count, Nothing, Reason, Text
from .views import DecidedEffect, decided_effect


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """The event as you saw it when you decided."""

    state: State
    claim: Count


class ExpectedReplay(Expected, frozen=True, forbid_unknown_fields=True):
    """The event as you saw it, and the preview if you read one."""

    preview: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None
    """The preview's `fingerprint`: 409 if the replay would now do something else."""


class ExpectedEffect(Struct, frozen=True, forbid_unknown_fields=True):
    """The effect as you saw it when you decided."""

    state: EffectState
    fence: Count


class Decision(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision about an event."""

    reason: Reason
    expected: Expected


class Replay(Struct, frozen=True, forbid_unknown_fields=True):
    """A replay of an event."""

    reason: Reason
    expected: ExpectedReplay
    repeat_effects: Annotated[list[Text], Meta(max_length=50)] = []
    """Finished effects to perform again: NAME, NAME:KEY or an idempotency key."""


class Resolution(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome that you found for an effect."""

    decision: Literal["happened", "did_not_happen", "cancel"]
    reason: Reason
    expected: ExpectedEffect
    result: Any = UNSET
    """With `happened`: the call's result; required if the handler reads it."""


async def _as_seen(asked: Asked[Nothing, Decision]) -> EventRow:
    """Return the event as the caller saw it; the store compares it when it acts."""
    event = (await search.find(asked.context, asked.path["reference"])).event
    return msgspec.structs.replace(event, state=asked.body.expected.state, claim=asked.body.expected.claim)


async def retry_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Retry a failed, retrying or needs_review event now, with a fresh retry budget."""
    return (await decide.retry(asked.context, asked.by, await _as_seen(asked))).event


async def discard_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Close a pending, retrying, failed or needs_review event without processing it. Its effects stay as they are."""
    return (await decide.discard(asked.context, asked.by, await _as_seen(asked))).event


async def replay_event(asked: Asked[Nothing, Replay]) -> EventRow:
    """Process an event again as a new run; effects that are done are skipped. 409 if something needs a decision."""
    wanted, repeat = asked.body.expected, asked.body.repeat_effects
    history = await search.find(asked.context, asked.path["reference"])
    seen = msgspec.structs.replace(history.event, state=wanted.state, claim=wanted.claim)
    shown = None
    if wanted.preview is not None:
        shown = preview(asked.context, history, repeat)
        if shown.fingerprint != wanted.preview:
            raise WrongState(f"event {seen.id}: the preview no longer applies; a replay now: {shown.words}")
    return (await replay(asked.context, asked.by, seen, repeat, shown=shown)).event


async def as_expected(asked: Asked[Any, Any], expected: ExpectedEffect) -> Effect:
    """Return the effect that the path names; WrongState if it has changed since the decision."""
    effect = await effects.find(asked.context, asked.path["reference"], asked.path["effect"])
    if (effect.state, effect.fence) != (expected.state, expected.fence):
        raise WrongState(f"effect {effect.label} has changed: it is now {effect.state}, fencing token {effect.fence}")
    return effect


async def resolve_effect(asked: Asked[Nothing, Resolution]) -> DecidedEffect:
    """Decide the outcome of an unknown or failed effect, named by NAME, NAME:KEY or its idempotency key. Then the
    event, or the outbox, continues."""
    given = asked.body
    effect = await as_expected(asked, given.expected)
    history = await effects.resolve(asked.context, asked.by, effect, given.decision, given.result)
    return decided_effect(history, effect)
