"""`hookledger pause`, `resume` and `pauses`: what workers leave alone for now."""

from __future__ import annotations

import click

from ..inbox import Inbox
from ..store.ops.pauses import Pause
from .common import looks_at_inbox, print_json, prints_json, run, status, table_console
from .decide import names_actor
from .look import moment
from .table import Listing, prose, say, whole


@click.command()
@click.argument("source")
@click.argument("type", default="*")
@names_actor
@looks_at_inbox
@prints_json
def pause(inbox: Inbox, source: str, type: str, reason: str, actor: str, as_json: bool) -> None:  # noqa: A002
    """Stop handling events of a SOURCE, or of one TYPE (it may end in *), until `resume`.

    No worker claims any of them from now on; what is being handled finishes. Deliveries are accepted as ever, and
    wait. What is in the outbox already is performed: `hookledger trip` stops the calls to a downstream.
    """

    async def act() -> Pause:
        async with inbox.opened() as store:
            return await inbox.actions(store, actor).pause(source, reason, type)

    made = run(act())
    if as_json:
        print_json(made)
    else:
        say(f"{_named(made.source, made.pattern)} is paused: its events wait until it is resumed.")


@click.command()
@click.argument("source")
@click.argument("type", default="*")
@names_actor
@looks_at_inbox
def resume(inbox: Inbox, source: str, type: str, reason: str, actor: str) -> None:  # noqa: A002
    """Take back the pause of a SOURCE, or of one TYPE, as it was given."""

    async def act() -> list[Pause]:
        async with inbox.opened() as store:
            await inbox.actions(store, actor).resume(source, reason, type)
            return [left for left in await inbox.insight(store).pauses() if left.source == source]

    left = run(act())
    say(f"{_named(source, type)} is handled again.")
    for one in left:
        say(f"Still paused: {_named(one.source, one.pattern)}, by {one.actor}")


@click.command()
@looks_at_inbox
@prints_json
def pauses(inbox: Inbox, as_json: bool) -> None:
    """List what is paused, by whom and why."""

    async def read() -> list[Pause]:
        async with inbox.opened() as store:
            return await inbox.insight(store).pauses()

    found = run(read())
    if as_json:
        print_json(found)
        return
    kind = (whole("source", head=True), whole("type", head=True))
    listing = Listing(*kind, whole("since (UTC)"), whole("by"), prose("why"))
    for one in found:
        listing.add(one.source, one.pattern, moment(one.since), one.actor, one.reason)
    listing.print(table_console())
    if not found:
        status.print("Nothing is paused.")


def _named(source: str, pattern: str) -> str:
    return f"Source {source}" if pattern == "*" else f"Source {source}, type {pattern},"
