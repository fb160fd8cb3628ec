"""Reports alerts that reach no person. Part of `doctor`: a failed alert raises no alert."""

from __future__ import annotations

from ...store.ops.alert_messages import COUNTED, LateTarget, MessageState
from ..alerts.messages import targets
from ..context import Context
from .finding import Finding

DAY = 86400.0
LATE = 300.0
"""Seconds after which a message that no process has tried to send is reported."""


async def alert_messages(context: Context) -> list[Finding]:
    """Report messages that failed within the last day, or that no process sends, and targets that cannot be used."""
    totals = await context.store.alert_messages.totals(since=context.clock.time() - DAY)
    late = await context.store.alert_messages.late(LATE)
    usable, problems = targets(context)
    return message_findings(totals, late, len(usable), problems)


def message_findings(
    totals: dict[MessageState, int], late: list[LateTarget], usable: int, problems: list[str]
) -> list[Finding]:
    about = "alert messages"
    found = []
    if failed := totals[MessageState.FAILED]:
        says = f"{failed:,}{' or more' * (failed >= COUNTED)} failed within the last day: they reached no person"
        found.append(Finding("problem", about, says, "`hookledger alerts --state failed`; `hookledger alerts test`"))
    for one in late:
        says = f"{one.count:,} to {one.target} wait since {one.since:%Y-%m-%d %H:%M} UTC: no process sends them"
        do = "run `hookledger work` or `hookledger api` with this target, or wait until they are deleted"
        found.append(Finding("warn", about, says, do))
    found += [Finding("warn", about, words.partition(": ")[0], words.partition(": ")[2]) for words in problems]
    if not found and usable:
        sent = totals[MessageState.SENT]
        counted = f"{sent:,}{' or more' * (sent >= COUNTED)}"
        found.append(
            Finding("ok", about, f"{usable} target{'s' * (usable != 1)}, {counted} sent within the last day")
        )
    return found
