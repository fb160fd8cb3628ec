"""`hookledger events`: list events, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import click
from rich.text import Text

from ..inbox import Inbox
from ..operate import search
from ..operate.search import Summary
from ..store.history import EventRow
from ..store.ops.filters import EVERYTHING, Filter
from ..store.ops.search import Page
from .common import inbox_options, print_json, prints_json, run_on, second, status
from .filters import FiltersEvents, filters_events, limit_option
from .table import Listing, coloured, number, prose, say


@click.command(cls=FiltersEvents)
@filters_events
@click.option("--before", type=click.UUID, help="Only older than this event: the next page.")
@limit_option(50)
@click.option("--counts", is_flag=True, help="Print only counts: by state, or of matching events.")
@inbox_options
@prints_json
def events(inbox: Inbox, where: Filter, before: UUID | None, limit: int, counts: bool, as_json: bool) -> None:
    """List events, newest first

    A long search stops early, and prints the option that continues it.
    """
    if counts and where == EVERYTHING:
        summary = run_on(inbox, search.summary)
        print_json(summary) if as_json else _print_summary(summary)
    elif counts:
        count = run_on(inbox, lambda context: search.count(context, where))
        print_json({"count": count}) if as_json else click.echo(count)
    else:
        page = run_on(inbox, lambda context: search.page(context, where, before=before, limit=limit))
        print_json(page.events) if as_json else _print_events(page.events)
        _print_end(page)


def _print_summary(found: Summary) -> None:
    _print_counts("events", found.events)
    _print_counts("deliveries", found.deliveries)


def _print_counts(title: str, counts: dict[str, int]) -> None:
    listing = Listing(title, number("count"))
    for name, count in counts.items():
        listing.add(name, f"{count:,}")
    listing.print()


def _print_events(found: Sequence[EventRow]) -> None:
    facts = ("key", number("tries"), number("came"), prose("why"))
    listing = Listing("event", "received (UTC)", "state", "source", "type", *facts, heads=5)
    for row in found:
        mark = Text(" !", "bold magenta") if row.attention or row.alert else Text()
        listing.add(
            str(row.id),
            second(row.received_at),
            coloured(row.state) + mark,
            row.source,
            row.type,
            row.key,
            f"{row.attempts:,}",
            f"{row.deliveries:,}",
            row.alert or row.reason or ("an effect failed or is unknown: hookledger show" if row.attention else ""),
        )
    listing.print()


def _print_end(page: Page) -> None:
    """Print how far the search read, and the option that continues it."""
    if page.looked_at is not None:
        say(f"Stopped after reading {page.looked_at:,} events; for older ones: --before {page.next}")
    elif page.next is not None:
        say(f"There may be more: --before {page.next}")
    elif not page.events:
        status.print("No events.")
