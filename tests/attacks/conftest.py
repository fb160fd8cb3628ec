"""The stores that are attacked, and a table of how each attack ended."""

import os

import pytest

from tests.crash.conftest import install, pytest_runtest_makereport
from tests.soak import ANY, amount

__all__ = ["install", "pytest_runtest_makereport"]

COLUMNS = ("attack", "store", "sent", "acked", "p99 ms", "peak MB", "end MB", "attacker")


@pytest.fixture(params=["sqlite", "postgres"] if ANY else ["sqlite"])
def attacked_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def attack_seconds() -> float:
    """A few in scripts/test, a minute in scripts/soak."""
    return float(os.environ.get("HOOKLEDGER_ATTACK_SECONDS") or amount(2, 8, 60))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [r for found in ("passed", "failed") for r in terminalreporter.stats.get(found, []) if r.when == "call"]
    rows = [dict(report.user_properties) for report in reports if "/attacks/" in f"/{report.nodeid}"]
    if any("attack" in row for row in rows):
        terminalreporter.section("attacks")
        for row in (dict(zip(COLUMNS, COLUMNS, strict=True)), *rows):
            terminalreporter.line(" | ".join(str(row.get(column, "")) for column in COLUMNS))
