"""`hookledger quarantine`: deliveries with a known key or body that may be events, and accepting one."""

from __future__ import annotations

from uuid import UUID

import click
from msgspec.structs import asdict

from ..inbox import Inbox
from ..operate.context import Context
from ..operate.quarantine import deliveries
from ..operate.quarantine.deliveries import QuarantinedDelivery
from ..operate.quarantine.difference import Difference
from ..states import DeliveryOutcome
from ..store.ops.audit import Audit
from .common import (
    audited,
    inbox_options,
    print_bytes,
    print_json,
    prints_json,
    run_on,
    second,
    status,
)
from .filters import limit_option, source_option
from .groups import ListsByDefault
from .table import Listing, print_command, print_facts, prose, say

COMPARED = 50
"""Number of conflicts per page whose content is compared with the event's."""
SHOWN = 3
"""Differing fields printed per delivery."""
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
@click.option("--outcome", type=click.Choice([outcome.value for outcome in WORDS]), help="Only with this outcome.")
@click.option("--before", type=click.UUID, help="Only older than this request: the next page.")
@limit_option(20)
@click.option("--body", metavar="DELIVERY", help="Print only the body of this delivery, byte for byte.")
@inbox_options
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
    if body is not None:
        request, _ = run_on(inbox, lambda context: deliveries.find(context, body))
        print_bytes(request.body)
        return

    async def read(context: Context) -> tuple[list[QuarantinedDelivery], dict[str, Difference]]:
        wanted = DeliveryOutcome(outcome) if outcome else None
        found = await deliveries.quarantined(context, source=source, outcome=wanted, before=before, limit=limit)
        conflicts = [one for one in found if one.outcome is DeliveryOutcome.CONFLICT][:COMPARED]
        return found, {one.delivery: await deliveries.difference(context, one) for one in conflicts}

    page, differences = run_on(inbox, read)
    if as_json:
        print_json([{**asdict(one), "difference": differences.get(one.delivery)} for one in page])
    else:
        _print(page, differences, limit)


def _print(found: list[QuarantinedDelivery], differences: dict[str, Difference], limit: int) -> None:
    if not found:
        status.print("No quarantined deliveries.")
        return
    met_it = ("event was", "known event", prose("differs"))
    listing = Listing("delivery", "when (UTC)", "outcome", "source", *met_it, heads=4)
    for one in found:
        met = one.event_key if one.event_key is not None else "only its key is kept"
        then = "now accepted" if one.accepted_as else str(one.event_state or "")
        differs = "; ".join(differences[one.delivery].first(SHOWN)) if one.delivery in differences else ""
        listing.add(one.delivery, second(one.received_at), one.outcome, one.source, then, met, differs)
    listing.print()
    print_facts(status, [(outcome, WORDS[outcome]) for outcome in sorted({one.outcome for one in found})])
    open_ones = [one.delivery for one in found if one.accepted_as is None]
    if open_ones:
        print_command("To look at one", ["hookledger", "quarantine", "--body", open_ones[0]])
        accept = ["hookledger", "quarantine", "accept", open_ones[0], "--reason", "WHY"]
        print_command("To accept it as an event", accept)
    if len(found) >= limit:
        say(f"There may be more: --before {found[-1].request_id}")


@quarantine.command()
@click.argument("delivery")
@audited
@inbox_options
@prints_json
def accept(inbox: Inbox, delivery: str, by: Audit, as_json: bool) -> None:
    """Accept a quarantined delivery as a new event

    DELIVERY is REQUEST:ITEM, REQUEST, or an id prefix. The event that it resembles stays as it is; the new event is
    pending.
    """
    history = run_on(inbox, lambda context: deliveries.accept(context, by, delivery))
    if as_json:
        print_json(history.event)
        return
    click.echo(str(history.event.id))
    say(f"Accepted as {history.event.key}: the event is {history.event.state}.")
