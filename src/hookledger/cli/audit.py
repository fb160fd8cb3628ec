"""`hookledger audit`: what operators did."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click

from ..inbox import Inbox
from ..operate import audit as operate
from ..store.ops.audit import Action, ActionFilter
from .common import inbox_options, print_json, prints_json, run_on, second, status
from .filters import Moment, limit_option
from .table import Listing, prose, say


@click.command()
@click.option("--by", "actor", help="Only what this actor did.")
@click.option("--name", help="Only this action, such as pause, retry or 'bulk retry'.")
@click.option("--event", help="Only what was done to this event: id, id prefix or key.")
@click.option("--no-event", is_flag=True, help="Only what belongs to no event, such as a pause.")
@click.option("--since", type=Moment(), help="Done at this time or later; 2h: two hours ago.")
@click.option("--until", type=Moment(), help="Done before this time.")
@click.option("--before", type=click.UUID, help="Only older than this action: the next page.")
@limit_option(50)
@inbox_options
@prints_json
def audit(
    inbox: Inbox,
    actor: str | None,
    name: str | None,
    event: str | None,
    no_event: bool,
    since: datetime | None,
    until: datetime | None,
    before: UUID | None,
    limit: int,
    as_json: bool,
) -> None:
    """List what operators did

    Newest first: who, when, what and why, and from which state to which. The actor of what Hookledger did itself,
    such as an alert, is `hookledger`.
    """
    if event is not None and no_event:
        raise click.UsageError("give --event or --no-event, not both")
    where = ActionFilter(actor, name, None, no_event, since, until)
    page = run_on(inbox, lambda context: operate.page(context, where, event=event, before=before, limit=limit))
    print_json(page.actions) if as_json else _print(page.actions)
    if page.looked_at is not None:
        say(f"Looked at {page.looked_at:,} actions and stopped; older ones: --before {page.next}")
    elif page.next is not None:
        say(f"There may be more: --before {page.next}")
    elif not page.actions:
        status.print("No actions.")


def _print(actions: tuple[Action, ...]) -> None:
    listing = Listing("when (UTC)", "action", "by", "event", prose("about"), prose("result"), prose("why"), heads=3)
    for one in actions:
        event = "" if one.event_id is None else str(one.event_id)
        result = f"{one.from_state} → {one.to_state}".strip()
        listing.add(second(one.at), one.name, one.actor, event, one.subject or "", result, one.reason)
    listing.print()
