"""The contents of stored events, newest first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple
from uuid import UUID

from ...errors import UnreadableError
from ...model import REPAIR
from ...store.history import EventRow
from ...store.ops.filters import Filter
from ..context import Context

PAGE = 200
Progress = Callable[[int], None]
"""Told how many events were looked at."""


def untold(looked_at: int) -> None:
    """Do nothing."""
    del looked_at


class Stored(NamedTuple):
    """An event with its content."""

    event: EventRow
    content: object
    """None if `raw` is None."""
    raw: bytes | None
    """The request's body; None if it is erased, or the content is unreadable."""


async def contents(
    context: Context,
    source: str,
    kind: str | None,
    *,
    last: int,
    version: str | None = None,
    before: UUID | None = None,
) -> AsyncIterator[Stored]:
    """Yield at most `last` events of a source, and of a type and a version if they are given, with one body at a time
    in memory."""
    left, where = last, Filter(source=source, type=kind, version=version)
    while left > 0:
        page = await context.store.search.page(where, before=before, limit=min(left, PAGE))
        for event in page.events:
            left -= 1
            if event.type != REPAIR:
                yield await _with_content(context, event)
        if page.next is None:
            return
        before = page.next


async def _with_content(context: Context, event: EventRow) -> Stored:
    request = None if event.emptied_at else await context.store.quarantine.request(event.request_id)
    if request is None or request.emptied_at is not None:
        return Stored(event, None, None)
    try:
        return Stored(event, context.sources.content(request, event.item), request.body)
    except (UnreadableError, IndexError):
        return Stored(event, None, None)
