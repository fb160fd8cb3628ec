"""`hookledger quarantine`: deliveries with a known key or body that may be events, and accepting one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
import msgspec

from ..inbox import Inbox
from ..model import History
from ..operate.difference import Difference
from ..states import DeliveryOutcome
from ..store.ops.quarantine import OddDelivery
from .common import (
    looks_at_inbox,
    names_actor,
    print_bytes,
    print_json,
    prints_json,
    run,
    second,
    status,
    table_console,
)
from .filters import limit_option, source_option
from .groups import ListsByDefault
from .table import Listing, print_command, print_facts, prose, say, whole

COMPARED = 50
"""Conflicts of a page whose content is compared with that of the event."""
SHOWN = 3
"""Fields that differ, of each."""
WORDS = {
    DeliveryOutcome.CONFLICT: "the key or signed token of a known event, with other content",
    DeliveryOutcome.SAME_BODY: "the content of a known event, under another id or type that is not signed",
}


@click.group(cls=ListsByDefault)
def quarantine() -> None:
    """List or accept quarantined deliveries

    A delivery is quarantined if its key is known and its content differs (conflict), or its content is known and its
    id or type differs and is not signed (same_body). It changes no event, and its bytes are kept.
    """


@quarantine.command("list")
@source_option
@click.option("--outcome", type=click.Choice([odd.value for odd in WORDS]), help="Only with this outcome.")
@click.option("--before", type=click.UUID, help="Only older than this request: the next page.")
@limit_option(20)
@click.option("--body", metavar="DELIVERY", help="Print only the body of this delivery, byte for byte.")
@looks_at_inbox
@prints_json
def list_quarantine(
    inbox: Inbox,
    source: str | None,
    outcome: str | None,
    before: UUID | None,
    limit: int,
    body: str | None,
    as_json: bool,
) -> None:
    """List quarantined deliveries, newest first

    Names the first fields that differ in each of the newest conflicts; `hookledger show` names more.
    """

    async def read() -> Any:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            if body is not None:
                request_id, _ = await insight.delivery(body)
                return await insight.request(request_id)
            wanted = DeliveryOutcome(outcome) if outcome else None
            found = await insight.odd_deliveries(source=source, outcome=wanted, before=before, limit=limit)
            conflicts = [odd for odd in found if odd.outcome is DeliveryOutcome.CONFLICT][:COMPARED]
            return found, {_name(odd): await insight.difference(odd) for odd in conflicts}

    found = run(read())
    if body is not None:
        print_bytes(found.body)
        return
    odd_ones, differences = found
    if as_json:
        named = [(_name(odd), msgspec.to_builtins(odd)) for odd in odd_ones]
        print_json([{"delivery": name, **odd, "difference": differences.get(name)} for name, odd in named])
    else:
        _print(odd_ones, differences, limit)


def _name(odd: OddDelivery) -> str:
    return f"{odd.request_id}:{odd.item}"


def _print(found: list[OddDelivery], differences: dict[str, Difference], limit: int) -> None:
    if not found:
        status.print("No quarantined deliveries.")
        return
    head = (whole("delivery", head=True), whole("when (UTC)", head=True), whole("outcome", head=True))
    met_it = (whole("was then"), whole("the event it met"), prose("differs"))
    listing = Listing(*head, whole("source", head=True), *met_it)
    for odd in found:
        met = odd.event_key if odd.event_key is not None else "known by its key alone"
        then = "now accepted" if odd.admitted_as else str(odd.event_state or "")
        differs = "; ".join(differences[_name(odd)].first(SHOWN)) if _name(odd) in differences else ""
        listing.add(_name(odd), second(odd.received_at), odd.outcome, odd.source, then, met, differs)
    listing.print(table_console())
    print_facts(status, [(outcome, WORDS[outcome]) for outcome in sorted({odd.outcome for odd in found})])
    open_ones = [_name(odd) for odd in found if odd.admitted_as is None]
    if open_ones:
        print_command("To look at one", ["hookledger", "quarantine", "--body", open_ones[0]])
        accept = ["hookledger", "quarantine", "accept", open_ones[0], "--reason", "WHY"]
        print_command("To accept it as an event", accept)
    if len(found) >= limit:
        say(f"There may be more: --before {found[-1].request_id}")


@quarantine.command()
@click.argument("delivery")
@names_actor
@looks_at_inbox
@prints_json
def accept(inbox: Inbox, delivery: str, reason: str, actor: str, as_json: bool) -> None:
    """Accept a quarantined delivery as a new event

    DELIVERY is REQUEST:ITEM, REQUEST, or an id prefix. The event that it resembles stays as it is; the new event is
    pending.
    """

    async def act() -> History:
        async with inbox.opened() as store:
            return await inbox.actions(store, actor).admit(delivery, reason)

    history = run(act())
    if as_json:
        print_json(msgspec.to_builtins(history.event))
        return
    click.echo(str(history.event.id))
    say(f"Accepted as {history.event.key}: the event is {history.event.state}.")
