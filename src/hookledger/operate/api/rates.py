"""Counts over time."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...store.ops.filters import Moment
from .. import rates
from ..rates import RatesPage
from .call import Asked, Nothing, Text


class RatesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which time, in which steps."""

    source: Text | None = None
    since: Moment | None = None
    """Default: 60 steps before `until`."""
    until: Moment | None = None
    """Default: now."""
    step: Literal[10, 60, 600, 3600] = 60
    """Seconds. The last minutes are there in steps of 10 s, 6 hours in steps of 60 s, 14 days in steps of 600 s and
    400 days in steps of an hour."""


async def list_rates(asked: Asked[RatesQuery, Nothing]) -> RatesPage:
    """Count over time what happened, by source and step: deliveries by outcome (`delivery.accepted`,
    `delivery.duplicate` …), `rejected`, `unavailable`, attempts by outcome (`attempt.processed`, `attempt.failed` …),
    `stale`, and the times of acknowledgements (`ack.0.05`) and from arrival to outcome (`delay.1`) by the upper bound
    of their bucket in seconds. A `source` of "" is a request that belongs to none. At most 2,000 steps."""
    query = asked.query
    return await rates.rates(
        asked.context, step=query.step, since=query.since, until=query.until, source=query.source
    )
