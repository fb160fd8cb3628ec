"""Deciding about one event: retry or discard it. Replaying one is in `replay/`."""

from __future__ import annotations

from ..errors import WrongState
from ..states import BY_NAME
from ..store.history import EventRow, History
from ..store.ops.audit import Audit
from . import search
from .context import Context


async def retry(context: Context, by: Audit, event: EventRow) -> History:
    """Retry a failed, retrying or needs_review event now, in the same run and with a fresh retry budget.

    `event`: as seen when this was decided; WrongState if it has changed.
    """
    allowed = BY_NAME["retry"].sources
    if event.state not in allowed:
        names = ", ".join(sorted(state.value for state in allowed))
        raise WrongState(f"event {event.id} is {event.state}: only {names} can be retried")
    await context.store.retry(event.id, event.state, *by, seen=event.claim)
    return await search.find(context, str(event.id))


async def discard(context: Context, by: Audit, event: EventRow) -> History:
    """Close an event without processing it; its effects stay as they are. `event`: as for `retry`."""
    await context.store.discard(event.id, event.state, *by, seen=event.claim)
    return await search.find(context, str(event.id))
