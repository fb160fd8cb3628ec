"""Effects by state, and having one done now."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ...filters import EffectFilter
from ...model import EventRow
from ..effects import EffectLine, line
from .call import Asked, Limit, Nothing, Reason
from .decide import ExpectedEffect, as_expected
from .views import EffectView, effect_of, effect_view


class EffectsQuery(EffectFilter, frozen=True, forbid_unknown_fields=True):
    """A filter, and where the page begins."""

    before: Annotated[str, Meta(pattern="^[0-9a-f-]{36}:[0-9a-f]{64}$")] | None = None
    """`next` of the page before."""
    limit: Limit = 50


class Listed(Struct, frozen=True):
    effects: list[EffectLine]
    """Those of the newest event first."""
    next: str | None
    """`before` of the next page; null at the end."""


class TryNow(Struct, frozen=True, forbid_unknown_fields=True):
    """What to try an effect on."""

    reason: Reason
    expected: ExpectedEffect


class Tried(Struct, frozen=True):
    effect: EffectView
    event: EventRow


async def list_effects(asked: Asked[EffectsQuery, Nothing]) -> Listed:
    """Effects by state, those of the newest event first; without `states`, all that are neither done nor cancelled.
    A viewer sees no errors."""
    query = asked.query
    where = EffectFilter(query.states, query.name, query.source)
    page = await asked.insight.trouble.effects(where, before=query.before, limit=query.limit)
    return Listed([line(one, complete=asked.sees_all) for one in page.effects], page.next)


async def try_effect(asked: Asked[Nothing, TryNow]) -> Tried:
    """Have the outbox go on with an effect now, with a fresh budget: one that is planned or failed, or unknown where
    its policy or its check may settle that. NAME, NAME:KEY, or its idempotency key."""
    effect = await as_expected(asked, asked.body.expected)
    history = await asked.actions.try_now(effect, asked.body.reason)
    return Tried(effect_view(effect_of(history, effect), complete=True), history.event)
