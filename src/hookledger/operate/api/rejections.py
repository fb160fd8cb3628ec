"""Rejected requests: the sample, the counts, verifying them again."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from ...model import Recorded
from ...receive.reasons import in_words
from ...store.ops.rejections import RejectionRow
from .. import rejections
from ..rejections import Rechecked, RejectionCount
from .call import Asked, Limit, Look, Nothing, Text, Why
from .sources import known_source
from .views import Header, as_text


class RejectionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None
    reason: Text | None = None
    """The code, such as `signature_mismatch`."""
    before: UUID | None = None
    """Only older than this request: `next` of the previous page."""
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
    """A kept rejected request, without the secrets that the provider's contract names. It is unverified."""

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
    """The exact body, in base64."""


class Rejections(Struct, frozen=True):
    rejections: list[Rejection]
    next: UUID | None
    """`before` for the next page; null at the end."""


class RejectionCounts(Struct, frozen=True):
    counts: list[RejectionCount]


class RecheckedRequest(Struct, frozen=True):
    """One rejected request, verified again."""

    id: UUID
    received_at: datetime
    reason: str
    """The reason it was rejected for."""
    authentic: bool
    reason_now: str | None
    """The reason for which it would be rejected now; null: it is authentic."""
    recorded: tuple[Recorded, ...]
    """The outcome of each of its events, if it was accepted."""


class Recheck(Struct, frozen=True):
    requests: list[RecheckedRequest]


async def list_rejections(asked: Asked[RejectionsQuery, Nothing]) -> Rejections:
    """The sample of rejected requests, newest first. All are counted; some are kept."""
    query = asked.query
    found = await rejections.rejections(
        asked.context, source=query.source, reason=query.reason, before=query.before, limit=query.limit
    )
    shown = [msgspec.convert({**_shown(row), "size": len(row.body)}, Rejection) for row in found]
    return Rejections(shown, found[-1].id if len(found) == query.limit else None)


async def count_rejections(asked: Look) -> RejectionCounts:
    """Count rejected requests by source and reason."""
    return RejectionCounts(await rejections.counts(asked.context))


async def show_rejection(asked: Look) -> RejectionContent:
    """One rejected request of the sample, with its exact body in base64."""
    return msgspec.convert(_shown(await rejections.find(asked.context, asked.path["rejection"])), RejectionContent)


def _shown(row: RejectionRow) -> dict[str, Any]:
    return {**as_text(row), "words": in_words(row.reason)}


async def recheck_rejections(asked: Look) -> Recheck:
    """Verify the rejected requests of a source again, with the secrets configured now. Records nothing."""
    return _recheck(await rejections.recheck(asked.context, known_source(asked)))


async def accept_rejections(asked: Asked[Nothing, Why]) -> Recheck:
    """Verify the rejected requests of a source again, and record those that are authentic now. They leave the sample:
    a second call does not find them."""
    return _recheck(await rejections.accept(asked.context, asked.by, known_source(asked)))


def _recheck(found: list[Rechecked]) -> Recheck:
    return Recheck(msgspec.convert(found, list[RecheckedRequest], from_attributes=True))
