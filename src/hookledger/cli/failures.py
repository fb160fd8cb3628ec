"""`hookledger failures` and `lag`: failing events by cause, and the backlog."""

from __future__ import annotations

import click

from ..inbox import Inbox
from ..operate import search
from ..states import State
from ..store.ops.filters import Filter
from ..store.ops.search import FailureGroup
from .common import inbox_options, print_json, prints_json, run_on, second, status
from .filters import limit_option, options_of, source_option
from .table import Listing, number, print_command, prose, say

TROUBLE = (State.FAILED, State.NEEDS_REVIEW, State.RETRYING)


@click.command()
@source_option
@limit_option(20)
@inbox_options
@prints_json
def failures(inbox: Inbox, source: str | None, limit: int, as_json: bool) -> None:
    """Group failing events by cause

    Covers events that are failed, retrying or in review, or have a failed or unknown effect (!); most frequent first.
    A cause is the reason without ids and numbers, the handler, and the line of your code; for (!) it is the effect,
    its state and its error. Reads the newest 20,000 events of each state.
    """
    where = Filter(source=source)
    found = run_on(inbox, lambda context: search.failures(context, where.source))
    if as_json:
        print_json(found[:limit])
        return
    facts = ("first (UTC)", "last (UTC)", "states", prose("cause"))
    listing = Listing(number("events"), "source", "type", *facts, heads=3)
    for group in found[:limit]:
        times = (second(group.first_at), second(group.last_at))
        listing.add(f"{group.count:,}", group.source, group.type, *times, _states(group), group.cause)
    listing.print()
    if not found:
        status.print("No events are failing.")
        return
    worst = found[0]
    print_command("To see one of the first", ["hookledger", "show", str(worst.sample)])
    print_command("To list all of the first", ["hookledger", "events", *options_of(_where(worst))])
    if len(found) > limit:
        say(f"{len(found) - limit:,} more causes: --limit {len(found)}")


def _where(group: FailureGroup) -> Filter:
    """Return the options that select a group's events; marked events have no cause: the effect selects them."""
    if group.failed + group.needs_review + group.retrying == 0:
        others = tuple(state for state in State if state not in TROUBLE)
        return Filter(source=group.source, type=group.type, attention=True, states=others, effect=group.effect)
    return Filter(source=group.source, type=group.type, cause=group.cause, states=TROUBLE)


def _states(group: FailureGroup) -> str:
    counts = {"failed": group.failed, "review": group.needs_review, "retrying": group.retrying, "!": group.marked}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


@click.command()
@inbox_options
@prints_json
def lag(inbox: Inbox, as_json: bool) -> None:
    """Show backlog size and age by type

    \b
    no handler: no live worker handles the type
    no handler of this version: one handles the type in other versions; these wait
    no handler here: no worker is alive, and this application has none
    """
    found = run_on(inbox, search.lag)
    if as_json:
        print_json(found)
        return
    counted = (number("pending"), number("retrying"), number("in work"))
    named = ("source", "type", *(("version",) if any(one.kind.version for one in found) else ()))
    listing = Listing(*named, *counted, "overdue by", "oldest received", heads=len(named))
    for one in found:
        counts = (f"{n:,}" for n in (one.pending, one.retrying, one.processing))
        late = "" if one.overdue is None or one.overdue < 0 else duration(one.overdue)
        late = ", ".join(filter(None, (late, one.unhandled)))
        listing.add(*(getattr(one.kind, name) for name in named), *counts, late, f"{duration(one.age)} ago")
    listing.print(empty="No backlog: every event is settled.")


def duration(seconds: float) -> str:
    """Return a duration in its largest unit, with one decimal."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 0.0):.1f} s"
