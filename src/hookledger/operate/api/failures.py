"""Failing events by cause, and the backlog."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ...store.causes import masked_cause
from ...store.ops.search import FailureGroup, Lag
from .. import search
from .call import Asked, Limit, Look, Nothing, Text


class FailuresQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None
    limit: Limit = 50
    """Maximum number of causes."""


class Failures(Struct, frozen=True):
    failures: list[FailureGroup]
    """Most frequent first."""
    more: int
    """Number of causes not listed."""


class Lags(Struct, frozen=True):
    lag: list[Lag]


async def list_failures(asked: Asked[FailuresQuery, Nothing]) -> Failures:
    """Group failing events by cause: failed, in review, retrying, or with a failed or unknown effect. A cause is the
    reason without ids and numbers, the handler, and the line of your code; the filter `cause` selects its events.
    Events with only a failed or unknown effect are grouped by `effect`, its state and its error. A viewer gets the
    exception's class and place. Reads the newest 20,000 events of each state."""
    found = await search.failures(asked.context, asked.query.source)
    if not asked.sees_all:
        found = [msgspec.structs.replace(g, cause=masked_cause(g.cause, g.effect)) for g in found]
    return Failures(found[: asked.query.limit], max(0, len(found) - asked.query.limit))


async def list_lag(asked: Look) -> Lags:
    """Show backlog size and age by source and type, and whether a live worker handles it."""
    return Lags(await search.lag(asked.context))
