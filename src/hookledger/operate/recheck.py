"""Judges what a source refused anew: after a secret was corrected, say. Only what proves authentic is taken in."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from ..errors import BadData, ConfigError, Unavailable
from ..model import Arrival, Recorded
from ..store.ops.cases import Cases
from ..store.ops.rejections import RefusalRow
from ..store.protocol import Store
from .receiving import Receiving

PAGE = 50


class Rechecked(Struct, frozen=True, kw_only=True):
    """One refused request, judged anew."""

    id: UUID
    received_at: datetime
    was: str
    """The reason it was refused for."""
    authentic: bool
    still: str | None = None
    """The reason that it would be refused for now."""
    arrival: Arrival | None = None
    became: tuple[Recorded, ...] = ()
    """What the events in it turned out to be, if it was taken in."""


async def recheck(cases: Cases, receiving: Receiving, source: str) -> list[Rechecked]:
    """All of the source's sample, which is bounded, the oldest first."""
    unprovable = receiving.facts(source).unprovable
    if unprovable is not None:
        raise ConfigError(f"what source {source!r} refused cannot be judged anew: {unprovable}")
    found: list[Rechecked] = []
    before = None
    while page := await cases.refusals(source=source, before=before, limit=PAGE):
        found += [await _judged(receiving, refusal) for refusal in page]
        before = page[-1].id
    return found[::-1]


async def _judged(receiving: Receiving, refusal: RefusalRow) -> Rechecked:
    try:
        verdict = await receiving.recheck(refusal)
    except Unavailable:  # a key that cannot be fetched now says nothing about the others
        verdict = "unavailable"
    good = isinstance(verdict, Arrival)
    return Rechecked(
        id=refusal.id,
        received_at=refusal.received_at,
        was=refusal.reason,
        authentic=good,
        still=None if isinstance(verdict, Arrival) else verdict,
        arrival=verdict if isinstance(verdict, Arrival) else None,
    )


async def take_in(store: Store, found: list[Rechecked], actor: str, reason: str) -> list[Rechecked]:
    """Record what proved authentic by the ordinary way, then drop it from the sample, audited.

    After a crash between the two it is in the sample still, and a duplicate when it is taken in again.
    """
    done = []
    for one in found:
        if one.arrival is None:
            done.append(one)
            continue
        try:
            [became] = await store.record([one.arrival])
        except BadData:
            done.append(msgspec.structs.replace(one, still="bad_data", arrival=None))
            continue
        events = list(dict.fromkeys(recorded.event_id for recorded in became))
        await store.cases.take_refusal(one.id, events, actor, reason)
        done.append(msgspec.structs.replace(one, became=tuple(became)))
    return done
