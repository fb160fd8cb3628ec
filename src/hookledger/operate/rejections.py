"""Rejected requests: the sample, the counts, and verifying them again, for example after a corrected secret."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..errors import BadData, ConfigError, Unavailable
from ..ids import id_bounds
from ..model import Arrival, Recorded
from ..receive.reasons import in_words
from ..store.ops.audit import Audit
from ..store.ops.rejections import RejectionCount as Counted
from ..store.ops.rejections import RejectionRow
from .context import Context
from .errors import Ambiguous, NotFound
from .examine import unprovable

PAGE = 50


class RejectionCount(Counted, frozen=True):
    """How often one source rejected requests for one reason; the sample holds only some of them."""

    words: str
    """The reason."""


class Rechecked(Struct, frozen=True, kw_only=True):
    """One rejected request, verified again."""

    id: UUID
    received_at: datetime
    reason: str
    """The reason it was rejected for."""
    authentic: bool
    reason_now: str | None = None
    """The reason for which it would be rejected now; None: it is authentic."""
    arrival: Arrival | None = None
    recorded: tuple[Recorded, ...] = ()
    """The outcome of each of its events, if it was accepted."""


async def rejections(
    context: Context,
    *,
    source: str | None = None,
    reason: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[RejectionRow]:
    """Return the sample of rejected requests, newest first."""
    return await context.store.rejections.sample(source=source, reason=reason, before=before, limit=limit)


async def counts(context: Context) -> list[RejectionCount]:
    """Count rejected requests by source and reason; the sample holds only some of them."""
    found = await context.store.rejections.rejection_counts()
    return [RejectionCount(**asdict(one), words=in_words(one.reason)) for one in found]


async def find(context: Context, reference: str) -> RejectionRow:
    """Return one request of the sample, by id or id prefix. Raises NotFound or Ambiguous."""
    bounds = id_bounds(reference)
    found = []
    if bounds is not None:
        after = UUID(int=min(bounds[1].int + 1, 2**128 - 1))
        found = [row for row in await rejections(context, before=after, limit=10) if bounds[0] <= row.id]
    if len(found) > 1:
        raise Ambiguous(
            f"{reference!r} is ambiguous; requests with this prefix: {', '.join(str(row.id) for row in found)}"
        )
    if not found:
        raise NotFound(f"unknown request {reference!r}: `hookledger rejections` lists the sample")
    return found[0]


async def recheck(context: Context, source: str) -> list[Rechecked]:
    """Verify the source's sample again, oldest first; records nothing."""
    why = unprovable(context.sources.endpoint(source))
    if why is not None:
        raise ConfigError(f"rejected requests of source {source!r} cannot be verified again: {why}")
    found: list[Rechecked] = []
    before = None
    while page := await rejections(context, source=source, before=before, limit=PAGE):
        found += [await _recheck(context, rejection) for rejection in page]
        before = page[-1].id
    return found[::-1]


async def _recheck(context: Context, rejection: RejectionRow) -> Rechecked:
    try:
        verdict = await context.sources.recheck(rejection)
    except Unavailable:  # a key that cannot be fetched concerns only this request
        verdict = "unavailable"
    arrival = verdict if isinstance(verdict, Arrival) else None
    return Rechecked(
        id=rejection.id,
        received_at=rejection.received_at,
        reason=rejection.reason,
        authentic=arrival is not None,
        reason_now=None if isinstance(verdict, Arrival) else verdict,
        arrival=arrival,
    )


async def accept(context: Context, by: Audit, source: str) -> list[Rechecked]:
    """Verify a source's rejected requests again, record the authentic ones as deliveries, then remove each from the
    sample, audited. The others stay.

    After a crash in between, a request is still in the sample, and accepting it again gives a duplicate.
    """
    done = []
    for one in await recheck(context, source):
        if one.arrival is None:
            done.append(one)
            continue
        try:
            [recorded] = await context.store.record([one.arrival])
        except BadData:
            done.append(msgspec.structs.replace(one, reason_now="bad_data", arrival=None))
            continue
        events = list(dict.fromkeys(each.event_id for each in recorded))
        await context.store.rejections.remove_recorded(one.id, events, *by)
        done.append(msgspec.structs.replace(one, recorded=tuple(recorded)))
    return done
