"""Reports the consistency checks that workers ran."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ...store.ops.checks import KINDS, Check, Kind, Standing
from ...store.ops.consistency import ENTRIES
from ..consistency.check import last_checks, standing
from ..context import Context
from .finding import Finding

OLD: dict[Kind, timedelta] = {"full": timedelta(days=2), "incremental": timedelta(hours=6)}
"""Age of the last check from which there is a warning."""
AGAIN = "`hookledger check` checks again now"


async def checked(context: Context) -> list[Finding]:
    """Report the last check of each kind, and what the checks found."""
    now = datetime.now(UTC)
    return check_findings(await last_checks(context, 5), await standing(context), now, context.consistency.enabled)


def check_findings(checks: Sequence[Check], state: Standing, now: datetime, enabled: bool = True) -> list[Finding]:
    if not enabled and not checks:
        do = "remove `enabled = false` from [consistency], or run `hookledger check` periodically"
        return [Finding("warn", "checks", "workers do not check consistency", do)]
    found = [_last(kind, [one for one in checks if one.kind == kind], now) for kind in KINDS]
    for rule, count in state.violations.items():
        sample = next((v.sample for one in checks for v in one.violations if v.kind == rule), ())
        says = f"a check found {count:,} {ENTRIES.get(rule, rule)}" + (f": {', '.join(sample[:5])}" if sample else "")
        found.append(Finding("problem", "checks", says, f"the lines on consistency say what is so now; {AGAIN}"))
    return found


def _last(kind: Kind, checks: Sequence[Check], now: datetime) -> Finding:
    about = f"{kind} check"
    ended = next((one for one in checks if one.whole), None)
    open_ = next((one for one in checks if one.ended_at is None), None)
    failed = next((one for one in checks if one.problem is not None), None)
    if ended is None or ended.ended_at is None:
        says = "has not come to its end yet" if checks else "has not run yet"
        do = "run a worker: it checks a minute after its start" if kind == "incremental" else f"run a worker; {AGAIN}"
        return Finding("warn" if failed else "ok", about, says + _why(failed), do if failed else "")
    says = f"ended {ended.ended_at:%Y-%m-%d %H:%M} UTC ({_ago(now - ended.ended_at)} ago), {ended.row_count:,} rows"
    says += ", no violations" if not ended.violations else f", {sum(v.count for v in ended.violations):,} violations"
    if open_ is not None and open_.started_at > ended.started_at:
        says += f"; the next began {_ago(now - open_.started_at)} ago: {open_.row_count:,} rows so far"
    later = failed if failed is not None and failed.started_at > ended.started_at else None
    if now - ended.ended_at > OLD[kind] or (later is not None and later.ended_at is not None):
        return Finding("warn", about, says + _why(later), f"check that a worker runs; {AGAIN}")
    return Finding("ok", about, says)


def _why(failed: Check | None) -> str:
    return "" if failed is None else f"; the one of {failed.started_at:%Y-%m-%d %H:%M} UTC failed: {failed.problem}"


def _ago(span: timedelta) -> str:
    minutes = max(0.0, span.total_seconds() / 60)
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
