"""What operators did: every action is one row, written with what it did."""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from ...clock import Clock
from ...ids import FIRST_ID, LAST_ID, first_id, new_id
from ..rows import value_of
from ..session import Database, Operations, Row, Session, searches
from .filters import Filter, Moment, Words, check_words
from .search import SLACK

STRETCH = 5_000
"""Actions that one query looks at."""
SECONDS = 5.0
"""A page that takes longer is given as it is."""


class Audit(NamedTuple):
    """Who does it, and why."""

    actor: str
    reason: str


class Change(NamedTuple):
    """What an action did: it took its subject, or the event, from one state to another."""

    subject: str | None
    states: tuple[str, str]
    event_id: UUID | None = None
    action_id: UUID | None = None
    """None: a new one."""


async def record_action(db: Session, name: str, by: Audit, *changes: Change) -> None:
    """Add an action to the audit log for each change, in one statement."""
    given = [(change.action_id or new_id(), change.event_id, change.subject, *change.states) for change in changes]
    await db("record_actions", name=name, actor=by.actor, reason=by.reason, changes=given)


# ── reading ──


class ActionFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Actions for which everything holds that is given; all of them if nothing is."""

    actor: Words | None = None
    name: Words | None = None
    """What was done: `pause`, `retry`, `bulk retry`."""
    event_id: UUID | None = None
    no_event: bool = False
    """Only those that belong to no event."""
    since: Moment | None = None
    """Done then or later."""
    until: Moment | None = None
    """Done before then."""

    def __post_init__(self) -> None:
        for name in ("actor", "name"):
            check_words(f"the filter's {name}", getattr(self, name))
        Filter(since=self.since, until=self.until)  # takes the same times


EVERY_ACTION = ActionFilter()


class Action(Struct, frozen=True):
    """One entry of the audit log."""

    id: UUID
    at: datetime
    actor: str
    name: str
    reason: str
    event_id: UUID | None
    """None for what belongs to no event, such as a pause."""
    subject: str | None
    """What it was about, other than the event itself: an effect, a circuit, a source, a job."""
    from_state: str
    to_state: str


class AuditPage(Struct, frozen=True):
    """Actions, the newest first."""

    actions: tuple[Action, ...]
    next: UUID | None
    """Continue before this one; None: there are no more."""
    looked_at: int | None
    """How many actions were looked at before the time was up; None when it was not."""


class AuditLog(Operations):
    """`store.audit`. Reads only: each operation adds its actions in its own transaction.

    The order is that of ids, which the acting process makes by its own clock. A time is compared with the database's
    clock: an action whose process was more than an hour off may be missed by `since` and `until`.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock

    async def page(
        self,
        where: ActionFilter = EVERY_ACTION,
        *,
        before: UUID | None = None,
        limit: int = 50,
        seconds: float = SECONDS,
    ) -> AuditPage:
        """Actions with ids before `before`. After so many seconds it stops, be the page full or not."""
        deadline, looked_at = monotonic() + seconds, 0
        found: tuple[Action, ...] = ()
        while True:
            stretch = await self._stretch(where, before, limit - len(found))
            found, before = found + stretch.actions, stretch.next
            if stretch.looked_at is None or len(found) == limit:
                return AuditPage(found, before, None)
            looked_at += stretch.looked_at
            if monotonic() >= deadline:
                return AuditPage(found, before, looked_at)

    @searches
    async def _stretch(self, db: Session, where: ActionFilter, before: UUID | None, limit: int) -> AuditPage:
        """What one query finds."""
        sql = db.piece("page_of_actions").replace("{where}", _condition(db, where))
        sql = sql.replace("{stretch}", db.piece("actions_by_id" if where.event_id is None else "actions_by_event"))
        low, high = self._bounds(where)
        values: dict[str, Any] = {
            name: getattr(where, name) for name in ("actor", "name", "event_id", "since", "until")
        }
        given = {name: value for name, value in values.items() if value is not None}
        high = min(high, before or LAST_ID)
        rows = await db.run(
            sql.replace("{most}", str(STRETCH)), {"limit": limit + 1, "low": low, "high": high, **given}
        )
        found = tuple(_action(row) for row in rows if row["holds"])
        if len(found) > limit:
            return AuditPage(found[:limit], found[limit - 1].id, None)
        if rows and rows[-1]["ends"]:
            return AuditPage(found, rows[-1]["id"], STRETCH)
        return AuditPage(found, None, None)

    def _bounds(self, where: ActionFilter) -> tuple[UUID, UUID]:
        """Ids between which every action of the filter's time lies."""
        slack = SLACK.total_seconds() + abs(self._clock.offset)
        low = FIRST_ID if where.since is None else first_id(where.since.timestamp() - slack)
        return low, LAST_ID if where.until is None else first_id(where.until.timestamp() + slack)


def _condition(db: Session, where: ActionFilter) -> str:
    named = ("actor", "name", "since", "until", "no_event")
    pieces = [db.piece(f"action_{name}") for name in named if getattr(where, name) not in (None, False)]
    return " AND ".join(pieces) or db.piece("any_action")


def _action(row: Row) -> Action:
    imported = row["event_id"] == row["id"]  # imported keys point to the action that imported them
    return value_of(Action, row, event_id=None if imported else row["event_id"])
