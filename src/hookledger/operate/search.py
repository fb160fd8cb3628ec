"""Finds events: lists, one by id or key, failures by cause, the backlog, counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import msgspec
from msgspec import Struct

from ..ids import id_bounds
from ..model import Kind
from ..states import State
from ..store.history import EventRow, History
from ..store.ops.filters import EVERYTHING, Filter
from ..store.ops.pruning import Tombstone
from ..store.ops.search import FailureGroup, Lag, Page
from .context import Context
from .errors import Ambiguous, NotFound
from .workers import handled_by, handles, handles_type, live_workers


class Summary(Struct, frozen=True):
    """Counts by state and outcome."""

    events: dict[str, int]
    deliveries: dict[str, int]


async def page(context: Context, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50) -> Page:
    """Return events, newest first, as far as one search step reads; the page says where to continue."""
    return await context.store.search.page(where, before=before, limit=limit)


async def each(context: Context, where: Filter, *, page: int = 1000) -> AsyncIterator[EventRow]:
    """Yield all matching events, newest first; `page`: how many are read at a time."""
    before: UUID | None = None
    while rows := await context.store.search.events(where, before=before, limit=page):
        before = rows[-1].id
        for row in rows:
            yield row


async def count(context: Context, where: Filter) -> int:
    """Count matching events exactly; Unavailable if that takes longer than 10 s."""
    return await context.store.search.count(where)


async def summary(context: Context) -> Summary:
    """Count events by state, and deliveries by outcome."""
    events, deliveries = await context.store.counts(), await context.store.delivery_counts()
    return Summary({state.value: events.get(state, 0) for state in State}, deliveries)


async def failures(context: Context, source: str | None = None) -> list[FailureGroup]:
    """Return failing events by cause, most frequent first."""
    return await context.store.search.failures(source)


async def lag(context: Context) -> list[Lag]:
    """Return the backlog by source and type, oldest first; marked if no live worker handles it or, without a live
    worker, the loaded application does not."""
    live, application = await live_workers(context), context.application
    live = live if any(worker.works(context.lease) for worker in live) else []
    patterns = handled_by(live) if live else application.routes.handles() if application.loaded else None

    def lacking(kind: Kind) -> str | None:
        if patterns is None or handles(patterns, kind):
            return None
        return f"no handler{' of this version' * handles_type(patterns, kind)}{' here' * (not live)}"

    return [msgspec.structs.replace(one, unhandled=lacking(one.kind)) for one in await context.store.search.lag()]


async def find(context: Context, reference: str) -> History:
    """Return one event in full, by id, id prefix or key. Raises NotFound or Ambiguous."""
    found = await context.store.find(reference)
    if len(found) > 1:
        raise Ambiguous(f"{reference!r} is ambiguous; events that match: {', '.join(map(str, found))}")
    history = await context.store.history(found[0]) if found else None
    if history is None:
        words = "; ".join(tombstone.words for tombstone in await pruned(context, reference))
        raise NotFound(
            words
            or f"unknown event {reference!r}: no key matches, and no id that begins so (give 8 characters or more); "
            "`hookledger events` lists events"
        )
    return history


async def pruned(context: Context, reference: str) -> list[Tombstone]:
    """Return what is left of pruned events with this id, id prefix or key."""
    found = await context.store.find(reference)
    bounds = (found[0], found[0]) if found else id_bounds(reference)
    return await context.store.pruning.pruned(*bounds) if bounds else []
