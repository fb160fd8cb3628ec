"""Quarantined deliveries, and rejected requests."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from ...model import EventRow
from ...states import DeliveryOutcome, State
from ...store.ops.rejections import RefusalRow
from .call import Asked, Limit, Look, Nothing, Text
from .circuits import Why
from .views import Header, RequestContent, headers, request_content


class QuarantineQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None
    outcome: Literal["conflict", "same_body"] | None = None
    before: UUID | None = None
    """Older than this request: `next` of the page before."""
    limit: Limit = 50


class QuarantinedDelivery(Struct, frozen=True):
    """A known key with other content, or a known body under another id."""

    delivery: str
    """How it is named: REQUEST:ITEM."""
    request_id: UUID
    item: int
    source: str
    outcome: DeliveryOutcome
    event_id: UUID
    """The event that it met."""
    event_key: str | None
    event_state: State | None
    """At that moment."""
    delivery_id: str | None
    received_at: datetime
    admitted_as: UUID | None
    """The event that it became when an operator accepted it."""


class Quarantine(Struct, frozen=True):
    deliveries: list[QuarantinedDelivery]
    next: UUID | None
    """`before` of the next page; null at the end."""


class RejectionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None
    reason: Text | None = None
    """The code, such as `signature_mismatch`."""
    before: UUID | None = None
    """Older than this one: `next` of the page before."""
    limit: Limit = 50


class Rejection(Struct, frozen=True):
    """A rejected request of the sample."""

    id: UUID
    source: str
    reason: str
    words: str
    received_at: datetime
    method: str
    size: int


class RejectionContent(Struct, frozen=True):
    """A rejected request as it was kept, without the secrets that the provider's contract names. It is unverified."""

    id: UUID
    source: str
    reason: str
    words: str
    received_at: datetime
    method: str
    path: str
    query: str
    headers: list[Header]
    remote: str | None
    body: bytes
    """Exactly as received, in base64."""


class Rejections(Struct, frozen=True):
    rejections: list[Rejection]
    next: UUID | None
    """`before` of the next page; null at the end."""


class RejectionCount(Struct, frozen=True):
    source: str
    """"" for requests that belong to no source."""
    reason: str
    words: str
    count: int
    kept: int
    """How many of them are in the sample."""
    first_at: datetime
    last_at: datetime


class RejectionCounts(Struct, frozen=True):
    counts: list[RejectionCount]


async def list_quarantine(asked: Asked[QuarantineQuery, Nothing]) -> Quarantine:
    """Quarantined deliveries, newest first: known keys with other content, known bodies under other ids."""
    query = asked.query
    outcome = DeliveryOutcome(query.outcome) if query.outcome else None
    found = await asked.insight.odd_deliveries(
        source=query.source, outcome=outcome, before=query.before, limit=query.limit
    )
    names = [name for name in QuarantinedDelivery.__struct_fields__ if name != "delivery"]
    shown = [
        QuarantinedDelivery(f"{one.request_id}:{one.item}", **{name: getattr(one, name) for name in names})
        for one in found
    ]
    return Quarantine(shown, found[-1].request_id if len(found) >= query.limit else None)


async def show_quarantined(asked: Look) -> RequestContent:
    """The request of a quarantined delivery, with its exact body in base64."""
    request_id, _ = await asked.insight.delivery(asked.path["delivery"])
    return request_content(await asked.insight.request(request_id))


async def accept_quarantined(asked: Asked[Nothing, Why]) -> EventRow:
    """Accept a quarantined delivery as a new event, once. It is named REQUEST:ITEM, REQUEST, or by an id prefix."""
    return (await asked.actions.admit(asked.path["delivery"], asked.body.reason)).event


async def list_rejections(asked: Asked[RejectionsQuery, Nothing]) -> Rejections:
    """The sample of rejected requests, newest first. All are counted; some are kept."""
    query = asked.query
    found = await asked.insight.refusals(
        source=query.source, reason=query.reason, before=query.before, limit=query.limit
    )
    shown = [
        Rejection(row.id, row.source, row.reason, _words(asked, row), row.received_at, row.method, len(row.body))
        for row in found
    ]
    return Rejections(shown, found[-1].id if len(found) == query.limit else None)


async def count_rejections(asked: Look) -> RejectionCounts:
    """How many requests were rejected, by source and reason."""
    found = await asked.insight.refusal_counts()
    names = [name for name in RejectionCount.__struct_fields__ if name != "words"]
    words = asked.insight.receiving.reason
    return RejectionCounts(
        [RejectionCount(words=words(one.reason), **{name: getattr(one, name) for name in names}) for one in found]
    )


async def show_rejection(asked: Look) -> RejectionContent:
    """One rejected request of the sample, with its exact body in base64."""
    row = await asked.insight.refusal(asked.path["rejection"])
    return RejectionContent(
        id=row.id,
        source=row.source,
        reason=row.reason,
        words=_words(asked, row),
        received_at=row.received_at,
        method=row.method,
        path=row.path,
        query=row.query.decode("latin-1"),
        headers=headers(row.headers),
        remote=row.remote,
        body=row.body,
    )


def _words(asked: Asked[Any, Any], row: RefusalRow) -> str:
    return asked.insight.receiving.reason(row.reason)
