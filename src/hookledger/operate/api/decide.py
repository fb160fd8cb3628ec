"""Decisions about events and effects. Each names the state it was based on; 409 if that has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from ...errors import WrongState
from ...ledger import Effect
from ...states import EffectState, State
from ...store.history import EventRow, History
from .. import decide, effects, review, search
from ..replay.preview import Preview
from ..replay.replay import preview, replay
from ..replay.stages import add_stage
from .call import Asked, Count, Nothing, Reason, Text
from .views import DecidedEffect, decided_effect


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """The event as you saw it when you decided."""

    state: State
    claim: Count


class ExpectedReplay(Expected, frozen=True, forbid_unknown_fields=True):
    """The event as you saw it, and the preview if you read one."""

    preview: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None
    """The preview's `fingerprint`: 409 if the new run would now do something else."""


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
    stage: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Add this stage to a processed event that lacks it. One that is there is replayed by its own id."""


class Approval(Struct, frozen=True, forbid_unknown_fields=True):
    """An approval of an event in review."""

    reason: Reason
    expected: ExpectedReplay


class Resolution(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome that you found for an effect."""

    decision: Literal["happened", "did_not_happen", "cancel"]
    reason: Reason
    expected: ExpectedEffect
    result: Any = UNSET
    """With `happened`: the call's result; required if the handler reads it."""


async def _as_seen(asked: Asked[Nothing, Decision]) -> EventRow:
    """Return the event as the caller saw it; the store compares it when it acts."""
    history = await search.find(asked.context, asked.path["reference"])
    return _seen(history, asked.body.expected)


def _seen(history: History, expected: Expected) -> EventRow:
    return msgspec.structs.replace(history.event, state=expected.state, claim=expected.claim)


def _agreed(asked: Asked[Nothing, Any], history: History, repeat: Sequence[str] = ()) -> Preview | None:
    """Return the preview that the caller names, if it names one and it still applies. WrongState if it does not."""
    fingerprint = asked.body.expected.preview
    if fingerprint is None:
        return None
    shown = preview(asked.context, history, repeat)
    if shown.fingerprint != fingerprint:
        raise WrongState(f"event {history.event.id}: the preview no longer applies; a new run now: {shown.words}")
    return shown


async def retry_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Retry a failed, retrying or needs_review event now, with a fresh retry budget."""
    return (await decide.retry(asked.context, asked.by, await _as_seen(asked))).event


async def discard_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Close a pending, retrying, failed or needs_review event without processing it. Its effects stay as they are."""
    return (await decide.discard(asked.context, asked.by, await _as_seen(asked))).event


async def replay_event(asked: Asked[Nothing, Replay]) -> EventRow:
    """Process an event again as a new run; effects that are done are skipped. 409 if something needs a decision."""
    repeat = asked.body.repeat_effects
    history = await search.find(asked.context, asked.path["reference"])
    seen = _seen(history, asked.body.expected)
    if asked.body.stage is not None:
        return (await add_stage(asked.context, asked.by, seen, asked.body.stage)).event
    shown = _agreed(asked, history, repeat)
    return (await replay(asked.context, asked.by, seen, repeat, shown=shown)).event


async def approve_event(asked: Asked[Nothing, Approval]) -> EventRow:
    """Let an event in review pass, for one new run in which its handler finds `event.approved`. `expected` names the
    review: 409 if the event has another one, or if something needs a decision."""
    history = await search.find(asked.context, asked.path["reference"])
    seen, shown = _seen(history, asked.body.expected), _agreed(asked, history)
    return (await review.approve(asked.context, asked.by, seen, shown=shown)).event


async def reject_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Answer a review with no: close the event without processing it. Its effects stay as they are."""
    return (await review.reject(asked.context, asked.by, await _as_seen(asked))).event


async def settle_event(asked: Asked[Nothing, Decision]) -> EventRow:
    """Record that an event in review was settled by hand: it is processed, without a run. Its effects stay as they
    are."""
    return (await review.settle(asked.context, asked.by, await _as_seen(asked))).event


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
