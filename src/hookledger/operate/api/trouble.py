"""What is in trouble, by cause, and what is late."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ...causes import masked_cause
from ...store.search import FailureGroup, Lag
from .call import Asked, Limit, Look, Nothing, Text


class FailuresQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None
    limit: Limit = 50
    """How many causes."""


class Failures(Struct, frozen=True):
    failures: list[FailureGroup]
    """The most frequent first."""
    more: int
    """Causes beyond these."""


class Lags(Struct, frozen=True):
    lag: list[Lag]


async def list_failures(asked: Asked[FailuresQuery, Nothing]) -> Failures:
    """What is in trouble by cause: failed, in review, retrying, or marked. A cause is the reason without ids and
    numbers, the handler, and the line of your code: the filter `cause` finds its events. Those that are only marked
    are grouped by their `effect`, its state and its error. A viewer sees the class of the exception and where it came
    from. Looks at the newest 20,000 events of each state."""
    found = await asked.insight.failures(asked.query.source)
    if not asked.sees_all:
        found = [msgspec.structs.replace(g, cause=masked_cause(g.cause, g.effect)) for g in found]
    return Failures(found[: asked.query.limit], max(0, len(found) - asked.query.limit))


async def list_lag(asked: Look) -> Lags:
    """What is not settled yet, by source and type: how much waits, for how long, and whether a live worker
    handles it."""
    return Lags(await asked.insight.lag(asked.services.lease))
