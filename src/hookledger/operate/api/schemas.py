"""Which fields the events of a source have."""

from __future__ import annotations

from msgspec import Struct

from ...store.ops.filters import Moment
from ..schemas import drift
from ..schemas.drift import Drift
from .call import Asked, Nothing
from .sources import known_source


class DriftQuery(Struct, frozen=True, forbid_unknown_fields=True):
    since: Moment | None = None
    """Only what was first seen since then."""


async def list_fields(asked: Asked[DriftQuery, Nothing]) -> Drift:
    """List which fields a source's events have and of which JSON types, those that were first seen last first.
    Workers look at the newest events once a minute. At most 2,000 fields, without values."""
    return await drift.drift(asked.context, known_source(asked), since=asked.query.since)
