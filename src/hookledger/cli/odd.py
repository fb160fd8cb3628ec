"""`hookledger deliveries` and `admit`: what came under a known key or with a known body, and is perhaps an event."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
import msgspec
from rich.markup import escape

from ..cases import OddDelivery
from ..inbox import Inbox
from ..model import History
from ..states import DeliveryOutcome
from .common import (
    brief,
    looks_at_inbox,
    narrow_table,
    print_bytes,
    print_json,
    prints_json,
    run,
    second,
    status,
    table_console,
)
from .decide import names_actor

WORDS = {
    DeliveryOutcome.CONFLICT: "the key of a known event, with other content",
    DeliveryOutcome.SAME_BODY: "the content of a known event, under another id that is not signed",
}


@click.command()
@click.option("--source", help="Only of this source.")
@click.option("--outcome", type=click.Choice([odd.value for odd in WORDS]), help="Only of this kind.")
@click.option("--before", type=click.UUID, help="Only older than this request: for the next page.")
@click.option("--limit", default=20, type=click.IntRange(1, 1000), help="How many.")
@click.option("--body", metavar="DELIVERY", help="Print only the body of this one, byte for byte.")
@looks_at_inbox
@prints_json
def deliveries(
    inbox: Inbox,
    source: str | None,
    outcome: str | None,
    before: UUID | None,
    limit: int,
    body: str | None,
    as_json: bool,
) -> None:
    """List odd deliveries, the newest first: known keys with other content, known bodies under other ids.

    None of them changed the event that it met, and their bytes are kept. `admit` makes an event of one.
    """

    async def read() -> Any:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            if body is not None:
                request_id, _ = await insight.delivery(body)
                return await insight.request(request_id)
            wanted = DeliveryOutcome(outcome) if outcome else None
            return await insight.odd_deliveries(source=source, outcome=wanted, before=before, limit=limit)

    found = run(read())
    if body is not None:
        print_bytes(found.body)
    elif as_json:
        print_json([{"delivery": _name(odd), **msgspec.to_builtins(odd)} for odd in found])
    else:
        _print(found, limit)


def _name(odd: OddDelivery) -> str:
    return f"{odd.request_id}:{odd.item}"


def _print(found: list[OddDelivery], limit: int) -> None:
    if not found:
        status.print("No odd deliveries.")
        return
    met = "the event it met"
    table = narrow_table("when (UTC)", "source", "outcome", met, "was then", "delivery", folds=met)
    for odd in found:
        met = escape(odd.event_key) if odd.event_key is not None else "known by its key alone"
        then = "now admitted" if odd.admitted_as else str(odd.event_state or "")
        name = f"{brief(odd.request_id)}:{odd.item}"
        table.add_row(second(odd.received_at), escape(odd.source), odd.outcome, met, then, name)
    table_console().print(table)
    for outcome in sorted({odd.outcome for odd in found}):
        status.print(f"[bold]{outcome}[/]: {WORDS[outcome]}", soft_wrap=True)
    open_ones = [odd for odd in found if odd.admitted_as is None]
    if open_ones:
        words = f"hookledger admit {_name(open_ones[0])} --reason …"
        status.print(f"To look at one: hookledger deliveries --body {_name(open_ones[0])}", soft_wrap=True)
        status.print(f"To make an event of it: {escape(words)}", soft_wrap=True)
    if len(found) >= limit:
        status.print(f"There may be more: --before {found[-1].request_id}")


@click.command()
@click.argument("delivery")
@names_actor
@looks_at_inbox
@prints_json
def admit(inbox: Inbox, delivery: str, reason: str, actor: str, as_json: bool) -> None:
    """Make an event of an odd DELIVERY: REQUEST:ITEM, REQUEST, or the beginning of its id.

    The event that it met stays as it is. The new one is pending, and a handler will see its content.
    """

    async def act() -> History:
        async with inbox.opened() as store:
            return await inbox.actions(store, actor).admit(delivery, reason)

    history = run(act())
    if as_json:
        print_json(msgspec.to_builtins(history.event))
        return
    click.echo(str(history.event.id))
    status.print(f"Admitted as {escape(history.event.key)}: the event is {history.event.state}.")
