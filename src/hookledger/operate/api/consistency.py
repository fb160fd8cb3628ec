"""What the consistency checks found."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from ...store.ops.checks import Check, Kind
from ...store.ops.consistency import ENTRIES
from ..consistency.check import last_checks, standing
from .call import Asked, Nothing


class ChecksQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 1
    """Checks of each kind, the newest first."""


class ViolationView(Struct, frozen=True):
    rule: str
    words: str
    """What is the matter, after the count."""
    count: int
    sample: list[str]
    """Ids of up to ten: events or, where there is none, requests or imports."""


class CheckView(Struct, frozen=True):
    id: UUID
    kind: Kind
    slot: datetime | None
    """The time that it was planned for; null if an operator asked for it."""
    since: datetime | None
    until: datetime | None
    """The arrivals that an incremental check looks at; null for a full one, which looks at all rows."""
    started_at: datetime
    ended_at: datetime | None
    """Null while it runs or waits to be resumed."""
    rows: int
    """Rows that it has looked at."""
    problem: str | None
    """Why it did not come to its end, or was interrupted last."""
    violations: list[ViolationView]


class Consistency(Struct, frozen=True):
    checked_at: datetime | None
    """When the last full check ended; null if there was none."""
    violations: int
    """What the last full check, and those that began later, found."""
    checks: list[CheckView]


async def show_consistency(asked: Asked[ChecksQuery, Nothing]) -> Consistency:
    """Show what the last consistency checks found. Workers run an incremental check every hour and a full one every
    night; `hookledger check` runs one by hand."""
    now, found = await standing(asked.context), await last_checks(asked.context, asked.query.limit)
    return Consistency(now.checked_at, now.total, [_view(check) for check in found])


def _view(check: Check) -> CheckView:
    violations = [
        ViolationView(one.kind, ENTRIES.get(one.kind, one.kind), one.count, list(one.sample))
        for one in check.violations
    ]
    return CheckView(
        id=check.id,
        kind=check.kind,
        slot=check.slot,
        since=check.since,
        until=check.until,
        started_at=check.started_at,
        ended_at=check.ended_at,
        rows=check.row_count,
        problem=check.problem,
        violations=violations,
    )
