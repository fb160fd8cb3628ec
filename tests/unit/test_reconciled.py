"""When a comparison is due, and what the doctor makes of the last one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from hookledger.ids import new_id
from hookledger.operate.doctor.checks import reconciliation_finding
from hookledger.operate.reconcile.plan import Plan
from hookledger.operate.schedule import Daily, Schedule, slot
from hookledger.store.ops.reconciling import Counts, Reconciliation

NOW = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)
AT = time(3, 0)


async def nothing(since: datetime, until: datetime) -> AsyncIterator[Any]:
    return
    yield


PLAN = Plan(lister=nothing, look_back=48 * 3600.0, at=AT, repairs=False, runs=True)


def last(
    hours: float = 1,
    *,
    problem: str | None = None,
    counts: Counts | None = None,
    over: bool = True,
    lease: float = 2,
) -> Any:
    at = NOW - timedelta(hours=hours)
    return Reconciliation(
        new_id(),
        "stripe",
        at,
        at - timedelta(hours=48),
        at,
        "hookledger",
        "daily",
        1,
        at,
        None if over else at + timedelta(hours=lease),
        at if over else None,
        problem,
        counts if counts or problem or not over else Counts(),
    )


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2027-03-01T03:00:00+00:00", "2027-03-01T03:00:00+00:00"),
        ("2027-03-01T02:59:59+00:00", "2027-02-28T03:00:00+00:00"),
        ("2027-03-01T00:30:00+02:00", "2027-02-28T03:00:00+00:00"),
        ("2027-03-01T23:59:59+00:00", "2027-03-01T03:00:00+00:00"),
    ],
)
def test_the_last_slot_that_has_come(now: str, due: str) -> None:
    assert slot(AT, datetime.fromisoformat(now)) == datetime.fromisoformat(due)


async def test_one_that_fails_keeps_no_other_back() -> None:
    ran = []

    async def bad(_: datetime) -> None:
        raise ZeroDivisionError

    async def good(due: datetime) -> None:
        ran.append(due)

    await Schedule([Daily("a", AT, bad), Daily("b", AT, good)], lambda: NOW).round()
    assert ran == [NOW.replace(hour=3)]


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (None, "warn", "never compared"),
        (last(), "ok", "1 h ago"),
        (last(over=False), "ok", "is running"),
        (last(over=False, lease=0.5), "warn", "was interrupted"),
        (last(problem="api.stripe.com answered 401"), "problem", "answered 401"),
        (last(problem="no answer", over=False), "problem", "no answer"),
        (last(counts=Counts(listed=2, failed=1)), "warn", "1 failed"),
        (last(counts=Counts(listed=2, missing=2, imported=2)), "ok", "2 imported"),
        (last(60), "warn", "60 h ago"),
    ],
)
def test_what_the_doctor_says(found: Any, level: str, words: str) -> None:
    finding = reconciliation_finding("stripe", PLAN, found, NOW)
    assert finding.level == level
    assert words in finding.says
    assert finding.do or level == "ok", "each says what to do"
