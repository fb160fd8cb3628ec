"""Quarantined deliveries: lists, one by its id, how it differs from its event, and accepting it as a new event."""

from __future__ import annotations

import asyncio
from uuid import UUID

from msgspec.structs import asdict

from ...errors import WrongState
from ...states import DeliveryOutcome
from ...store.history import History, RequestRow
from ...store.ops.audit import Audit
from ...store.ops.quarantine import QuarantinedDelivery as Stored
from .. import search
from ..context import Context
from ..errors import Ambiguous, NotFound
from .difference import Conflict, Difference, differ


class QuarantinedDelivery(Stored, frozen=True):
    """A known key with other content, or a known body under another id."""

    delivery: str
    """Its name: REQUEST:ITEM."""


async def quarantined(
    context: Context,
    *,
    source: str | None = None,
    outcome: DeliveryOutcome | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[QuarantinedDelivery]:
    """Return conflicts and known bodies under other ids, newest first."""
    found = await context.store.quarantine.quarantined(source=source, outcome=outcome, before=before, limit=limit)
    return [QuarantinedDelivery(**asdict(one), delivery=f"{one.request_id}:{one.item}") for one in found]


async def find(context: Context, reference: str) -> tuple[RequestRow, int]:
    """Return the request of a quarantined delivery, with its body, and its place there; by REQUEST:ITEM, REQUEST or
    an id prefix. Raises NotFound or Ambiguous."""
    found = await context.store.quarantine.find_delivery(reference)
    if len(found) > 1:
        raise Ambiguous(
            f"{reference!r} is ambiguous; deliveries with this prefix: {', '.join(f'{i}:{n}' for i, n in found)}"
        )
    if not found:
        raise NotFound(f"unknown delivery {reference!r}: `hookledger quarantine` lists them")
    [(request_id, place)] = found
    request = await context.store.quarantine.request(request_id)
    if request is None:
        raise NotFound(f"the body of request {request_id} is not kept: pruned or erased")
    return request, place


async def difference(context: Context, delivery: QuarantinedDelivery) -> Difference:
    """Return how a conflict differs from its event."""
    history = await context.store.history(delivery.event_id)
    met = (None, 0) if history is None else (history.request, history.event.item)
    return await _difference(context, met, delivery.request_id, delivery.item)


async def conflicts(context: Context, history: History, limit: int = 3) -> list[Conflict]:
    """Return the newest deliveries whose content differs from the event's, and how."""
    found = [row for row in history.deliveries if row.outcome is DeliveryOutcome.CONFLICT][: -limit - 1 : -1]
    met, conflicts = (history.request, history.event.item), []
    for row in found:
        difference = await _difference(context, met, row.request_id, row.item)
        conflicts.append(Conflict(f"{row.request_id}:{row.item}", row.received_at, difference))
    return conflicts


async def _difference(
    context: Context, met: tuple[RequestRow | None, int], request_id: UUID, item: int
) -> Difference:
    request = await context.store.quarantine.request(request_id)
    # In a thread: two bodies of a megabyte take a second.
    return await asyncio.to_thread(differ, context.sources, met, (request, item))


async def accept(context: Context, by: Audit, reference: str) -> History:
    """Accept a quarantined delivery as a new, pending event, identified as its source is configured now."""
    request, place = await find(context, reference)
    items = context.sources.identify(request)
    if place >= len(items):
        raise WrongState(f"as source {request.source!r} reads it now, the request has no event at place {place}")
    item = items[place]
    if item.invalid is not None:
        raise WrongState(f"delivery {request.id}:{place} cannot be accepted: {item.invalid}")
    if item.skip is not None:
        raise WrongState(f"delivery {request.id}:{place} would be skipped: {item.skip}")
    event_id = await context.store.quarantine.accept(request.id, place, item, *by)
    return await search.find(context, str(event_id))
