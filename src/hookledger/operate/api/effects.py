"""Effects: list them by state, and retry one now."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ...store.ops.filters import EffectFilter
from .. import effects
from ..effects import EffectLine, line
from .call import Asked, Limit, Nothing, Reason
from .decide import ExpectedEffect, as_expected
from .views import DecidedEffect, decided_effect


class EffectsQuery(EffectFilter, frozen=True, forbid_unknown_fields=True):
    """A filter and a page."""

    before: Annotated[str, Meta(pattern="^[0-9a-f-]{36}:[0-9a-f]{64}$")] | None = None
    """`next` of the previous page."""
    limit: Limit = 50


class Listed(Struct, frozen=True):
    effects: list[EffectLine]
    """Effects of the newest event first."""
    next: str | None
    """`before` for the next page; null at the end."""


class TryNow(Struct, frozen=True, forbid_unknown_fields=True):
    """Which effect to retry."""

    reason: Reason
    expected: ExpectedEffect


async def list_effects(asked: Asked[EffectsQuery, Nothing]) -> Listed:
    """List effects by state, those of the newest event first; without `states`, all that are neither done nor
    cancelled. A viewer gets no errors."""
    query = asked.query
    where = EffectFilter(query.states, query.name, query.source)
    page = await effects.page(asked.context, where, before=query.before, limit=query.limit)
    return Listed([line(one, complete=asked.sees_all) for one in page.effects], page.next)


async def try_effect(asked: Asked[Nothing, TryNow]) -> DecidedEffect:
    """Retry an effect now, with a fresh retry budget: one that is planned or failed, or unknown if its policy or
    check can settle it. Named by NAME, NAME:KEY or its idempotency key."""
    effect = await as_expected(asked, asked.body.expected)
    history = await effects.try_now(asked.context, asked.by, effect)
    return decided_effect(history, effect)
