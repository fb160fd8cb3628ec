"""`hookledger failures` and `lag`: what is in trouble, and what is late."""

from __future__ import annotations

import shlex
from typing import Any

import click
from rich.markup import escape

from ..filters import Filter
from ..inbox import Inbox
from ..states import State
from ..store.search import FailureGroup, Lag
from .common import looks_at_inbox, narrow_table, print_json, prints_json, run, second, status, table_console
from .filters import options_of

TROUBLE = (State.FAILED, State.NEEDS_REVIEW, State.RETRYING)


@click.command()
@click.option("--source", help="Only of this source.")
@click.option("--limit", default=20, type=click.IntRange(1, 1000), help="How many causes.")
@looks_at_inbox
@prints_json
def failures(inbox: Inbox, source: str | None, limit: int, as_json: bool) -> None:
    """List what is in trouble by cause: failed, in review, retrying, or marked; the most frequent first.

    A cause is the reason without ids, numbers and quoted values. Looks at the newest 20,000 events of each state.
    """
    where = Filter(source=source)

    async def read() -> Any:
        async with inbox.opened() as store:
            return await inbox.insight(store).failures(where.source)

    found: list[FailureGroup] = run(read())
    if as_json:
        print_json(found[:limit])
        return
    table = narrow_table("events", "source", "type", "first (UTC)", "last (UTC)", "states", "cause", folds="cause")
    for group in found[:limit]:
        cells = (group.source, escape(group.type), second(group.first_at), second(group.last_at), _states(group))
        table.add_row(f"{group.count:,}", *cells, escape(group.cause))
    table_console().print(table)
    if not found:
        status.print("Nothing is in trouble.")
        return
    worst = found[0]
    status.print(f"To see one: hookledger show {worst.sample}", soft_wrap=True)
    words = shlex.join(options_of(_where(worst)))
    status.print(f"To list those of the first line: hookledger events {escape(words)}", soft_wrap=True)
    if len(found) > limit:
        status.print(f"{len(found) - limit:,} more causes: --limit {len(found)}")


def _where(group: FailureGroup) -> Filter:
    """The events of a group. Those that are only marked have no cause of their own."""
    if group.failed + group.needs_review + group.retrying == 0:
        return Filter(source=group.source, type=group.type, attention=True)
    return Filter(source=group.source, type=group.type, cause=group.cause, states=TROUBLE)


def _states(group: FailureGroup) -> str:
    counts = {"failed": group.failed, "review": group.needs_review, "retrying": group.retrying, "!": group.marked}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


@click.command()
@looks_at_inbox
@prints_json
def lag(inbox: Inbox, as_json: bool) -> None:
    """Show what is not settled yet, by source and type: how much waits, and for how long."""

    async def read() -> Any:
        async with inbox.opened() as store:
            return await inbox.insight(store).lag()

    found: list[Lag] = run(read())
    if as_json:
        print_json(found)
        return
    columns = ("source", "type", "pending", "retrying", "in work", "overdue by", "oldest received")
    table = narrow_table(*columns, folds="type")
    for one in found:
        counts = (f"{n:,}" for n in (one.pending, one.retrying, one.processing))
        late = "" if one.overdue is None or one.overdue < 0 else duration(one.overdue)
        table.add_row(one.kind.source, escape(one.kind.type), *counts, late, f"{duration(one.age)} ago")
    table_console().print(table)
    if not found:
        status.print("Nothing waits.")


def duration(seconds: float) -> str:
    """In the largest unit that it fills, and one place after the point."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 0.0):.1f} s"
