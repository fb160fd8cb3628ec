"""`hookledger failures` and `lag`: what is in trouble, and what is late."""

from __future__ import annotations

from typing import Any

import click

from ..filters import Filter
from ..inbox import Inbox
from ..states import State
from ..store.search import FailureGroup, Lag
from .common import looks_at_inbox, print_json, prints_json, run, second, status, table_console
from .filters import options_of
from .table import Listing, number, print_command, prose, say, whole

TROUBLE = (State.FAILED, State.NEEDS_REVIEW, State.RETRYING)


@click.command()
@click.option("--source", help="Only of this source.")
@click.option("--limit", default=20, type=click.IntRange(1, 1000), help="How many causes.")
@looks_at_inbox
@prints_json
def failures(inbox: Inbox, source: str | None, limit: int, as_json: bool) -> None:
    """List what is in trouble by cause: failed, in review, retrying, or marked; the most frequent first.

    A cause is the reason without ids and numbers, the handler, and the line of your code; of an event that is only
    marked, the effect, its state and its error. Looks at the newest 20,000 events of each state.
    """
    where = Filter(source=source)

    async def read() -> Any:
        async with inbox.opened() as store:
            return await inbox.insight(store).failures(where.source)

    found: list[FailureGroup] = run(read())
    if as_json:
        print_json(found[:limit])
        return
    kind = (number("events", head=True), whole("source", head=True), whole("type", head=True))
    listing = Listing(*kind, whole("first (UTC)"), whole("last (UTC)"), whole("states"), prose("cause"))
    for group in found[:limit]:
        times = (second(group.first_at), second(group.last_at))
        listing.add(f"{group.count:,}", group.source, group.type, *times, _states(group), group.cause)
    listing.print(table_console())
    if not found:
        status.print("Nothing is in trouble.")
        return
    worst = found[0]
    print_command("To see one of the first", ["hookledger", "show", str(worst.sample)])
    print_command("To list all of the first", ["hookledger", "events", *options_of(_where(worst))])
    if len(found) > limit:
        say(f"{len(found) - limit:,} more causes: --limit {len(found)}")


def _where(group: FailureGroup) -> Filter:
    """The events of a group. Those that are only marked have no cause of their own."""
    if group.failed + group.needs_review + group.retrying == 0:
        others = tuple(state for state in State if state not in TROUBLE)
        return Filter(source=group.source, type=group.type, attention=True, states=others, effect=group.effect)
    return Filter(source=group.source, type=group.type, cause=group.cause, states=TROUBLE)


def _states(group: FailureGroup) -> str:
    counts = {"failed": group.failed, "review": group.needs_review, "retrying": group.retrying, "!": group.marked}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


@click.command()
@looks_at_inbox
@prints_json
def lag(inbox: Inbox, as_json: bool) -> None:
    """Show what is not settled yet, by source and type: how much waits, and for how long.

    no handler: no live worker handles the type. no handler here: no worker lives, and this application has none.
    """

    async def read() -> Any:
        async with inbox.opened() as store:
            return await inbox.insight(store).lag(inbox.settings.work.lease)

    found: list[Lag] = run(read())
    if as_json:
        print_json(found)
        return
    counted = (number("pending"), number("retrying"), number("in work"))
    kind = (whole("source", head=True), whole("type", head=True))
    listing = Listing(*kind, *counted, whole("overdue by"), whole("oldest received"))
    for one in found:
        counts = (f"{n:,}" for n in (one.pending, one.retrying, one.processing))
        late = "" if one.overdue is None or one.overdue < 0 else duration(one.overdue)
        late = ", ".join(filter(None, (late, one.unhandled)))
        listing.add(one.kind.source, one.kind.type, *counts, late, f"{duration(one.age)} ago")
    listing.print(table_console())
    if not found:
        status.print("Nothing waits.")


def duration(seconds: float) -> str:
    """In the largest unit that it fills, and one place after the point."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 0.0):.1f} s"
