"""The audit log."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from ...store.ops.audit import ActionFilter, AuditPage
from ...store.ops.filters import Moment, Words
from .. import audit
from .call import Asked, Limit, Nothing


class ActionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A filter, and where the page begins."""

    actor: Words | None = None
    name: Words | None = None
    """What was done: `pause`, `retry`, `bulk retry`."""
    event: Words | None = None
    """Only what was done to this event: its id, id prefix or key."""
    no_event: bool = False
    """Only those that belong to no event."""
    since: Moment | None = None
    """Done then or later."""
    until: Moment | None = None
    """Done before then."""
    before: UUID | None = None
    """`next` of the page before."""
    limit: Limit = 50

    def __post_init__(self) -> None:
        _ = self.where  # what it rejects is a bad request

    @property
    def where(self) -> ActionFilter:
        return ActionFilter(self.actor, self.name, None, self.no_event, self.since, self.until)


async def list_actions(asked: Asked[ActionsQuery, Nothing]) -> AuditPage:
    """What operators did, newest first: who, when, what, why, and from which state to which.

    `next` is `before` of the next page; null at the end. A long search stops early: a page may be short or empty
    without being the last, and `looked_at` is the number of actions read.
    """
    query = asked.query
    return await audit.page(asked.context, query.where, event=query.event, before=query.before, limit=query.limit)
