"""Messages to people."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from msgspec import Struct

from ...store.ops.alert_messages import MessageState
from ..alerts import messages
from ..alerts.messages import AlertRow
from .call import Asked, Limit, Nothing, Text


class AlertsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    state: Literal["waiting", "sent", "failed"] | None = None
    target: Text | None = None
    before: UUID | None = None
    """Only older than this message: `next` of the previous page."""
    limit: Limit = 50


class Alerts(Struct, frozen=True):
    alerts: list[AlertRow]
    """Newest first."""
    totals: dict[MessageState, int]
    """Messages in each state, counted up to 10,000."""
    next: UUID | None
    """`before` for the next page; null at the end."""


async def list_alerts(asked: Asked[AlertsQuery, Nothing]) -> Alerts:
    """List alerts to people, newest first: waiting, sent and failed, with what each says and the command to begin
    with. Messages quote no payload."""
    query = asked.query
    state = MessageState(query.state) if query.state else None
    found = await messages.messages(
        asked.context, state=state, target=query.target, before=query.before, limit=query.limit
    )
    totals = await messages.alert_totals(asked.context)
    return Alerts(found, totals, found[-1].message.id if len(found) >= query.limit else None)
