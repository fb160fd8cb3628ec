"""What `doctor` says of the checks that workers ran."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hookledger.operate.consistency.check import Checker
from hookledger.operate.consistency.settings import ConsistencySettings
from hookledger.operate.doctor.checked import check_findings
from hookledger.operate.doctor.finding import Finding
from hookledger.store.ops.checks import Check, Standing
from hookledger.store.ops.consistency import Violation

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LOST = Violation("requests_missing", 1200, ("id-1", "id-2"))


def check(kind: Any, ago: timedelta, **other: Any) -> Check:
    given = {"started_at": NOW - ago - HOUR / 60, "ended_at": NOW - ago, "problem": None, "row_count": 12345}
    facts = {"id": UUID(int=1), "slot": None, "since": None, "until": None, "fence": 1, "holder": "w"}
    return Check(kind=kind, **{**facts, **given, **other})


def found(*checks: Check, standing: Standing | None = None, enabled: bool = True) -> list[Finding]:
    return check_findings(list(checks), standing or Standing(NOW, {}), NOW, enabled)


def test_both_ended_in_time() -> None:
    full, incremental = found(check("full", 9 * HOUR), check("incremental", HOUR / 2))
    assert (full.level, full.about) == ("ok", "full check")
    assert full.says == "ended 2026-05-04 03:00 UTC (9 h ago), 12,345 rows, no violations"
    assert (incremental.level, incremental.about) == ("ok", "incremental check")


def test_nothing_has_run() -> None:
    assert [(one.level, one.says) for one in found()] == [("ok", "has not run yet")] * 2
    [off] = found(enabled=False)
    assert off.level == "warn"


def test_the_last_is_old() -> None:
    full, incremental = found(check("full", 49 * HOUR), check("incremental", 7 * HOUR))
    assert [full.level, incremental.level] == ["warn", "warn"]
    assert "hookledger check" in full.do


def test_one_failed() -> None:
    failed = check("full", HOUR, problem="it took too long")
    full, _ = found(failed, check("full", 25 * HOUR))
    assert full.level == "warn" and "failed: it took too long" in full.says
    full, _ = found(failed)
    assert full.level == "warn" and "has not come to its end yet" in full.says


def test_one_is_running() -> None:
    full, _ = found(check("full", timedelta(0), ended_at=None, row_count=500), check("full", 25 * HOUR))
    assert full.level == "ok" and full.says.endswith("the next began 1 min ago: 500 rows so far")


def test_violations_are_named() -> None:
    standing = Standing(NOW, {"requests_missing": 1200})
    *_, last = found(check("full", 9 * HOUR, violations=(LOST,)), standing=standing)
    assert last.level == "problem"
    assert last.says == "a check found 1,200 deliveries should have their bytes, and do not: id-1, id-2"


def test_slots() -> None:
    class At:
        def now(self) -> datetime:
            return datetime(2026, 5, 4, 2, 59, tzinfo=UTC)

    class Empty:
        checks = None

    settings = ConsistencySettings(full_at="03:00")
    slots = Checker(Empty(), settings, At(), "w").slots()  # type: ignore[arg-type]
    assert slots == {
        "incremental": datetime(2026, 5, 4, 2, tzinfo=UTC),
        "full": datetime(2026, 5, 3, 3, tzinfo=UTC),
    }
