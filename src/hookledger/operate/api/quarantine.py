"""Quarantined deliveries: listing, showing and accepting them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from msgspec import Struct

from ...states import DeliveryOutcome
from ...store.history import EventRow
from ..quarantine import deliveries
from ..quarantine.deliveries import QuarantinedDelivery
from .call import Asked, Limit, Look, Nothing, Text, Why
from .views import RequestContent, request_content


class QuarantineQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None
    outcome: Literal["conflict", "same_body"] | None = None
    before: UUID | None = None
    """Only older than this request: `next` of the previous page."""
    limit: Limit = 50


class Quarantine(Struct, frozen=True):
    deliveries: list[QuarantinedDelivery]
    next: UUID | None
    """`before` for the next page; null at the end."""


async def list_quarantine(asked: Asked[QuarantineQuery, Nothing]) -> Quarantine:
    """Quarantined deliveries, newest first: known keys with other content, known bodies under other ids."""
    query = asked.query
    outcome = DeliveryOutcome(query.outcome) if query.outcome else None
    found = await deliveries.quarantined(
        asked.context, source=query.source, outcome=outcome, before=query.before, limit=query.limit
    )
    return Quarantine(found, found[-1].request_id if len(found) >= query.limit else None)


async def show_quarantined(asked: Look) -> RequestContent:
    """The request of a quarantined delivery, with its exact body in base64."""
    request, _ = await deliveries.find(asked.context, asked.path["delivery"])
    return request_content(request)


async def accept_quarantined(asked: Asked[Nothing, Why]) -> EventRow:
    """Accept a quarantined delivery as a new event, once. It is named REQUEST:ITEM, REQUEST, or by an id prefix."""
    return (await deliveries.accept(asked.context, asked.by, asked.path["delivery"])).event
