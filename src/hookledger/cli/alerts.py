"""`hookledger alerts`: messages to people, and a test of each target."""

from __future__ import annotations

from uuid import UUID

import click

from ..inbox import Inbox
from ..operate.alerts import messages
from ..store.ops.alert_messages import MessageState
from . import exits
from .common import inbox_options, print_json, prints_json, run_on, second, status
from .filters import limit_option
from .groups import ListsByDefault
from .table import Listing, number, print_command, prose, say

STATES = click.Choice([state.value for state in MessageState])


@click.group(cls=ListsByDefault)
def alerts() -> None:
    """List alerts sent to people, or test the targets

    Workers and `hookledger api` send them to the targets in [alerts] and to @inbox.alert functions.
    """


@alerts.command("list")
@click.option("--state", type=STATES, help="Only messages in this state.")
@click.option("--target", help="Only messages to this target.")
@click.option("--before", type=click.UUID, help="Only older than this message: the next page.")
@limit_option(20)
@inbox_options
@prints_json
def list_alerts(
    inbox: Inbox, state: str | None, target: str | None, before: UUID | None, limit: int, as_json: bool
) -> None:
    """List alerts, newest first: waiting, sent and failed

    waiting: due later, or tried again after a failure
    """
    wanted = None if state is None else MessageState(state)
    found = run_on(
        inbox,
        lambda context: messages.messages(context, state=wanted, target=target, before=before, limit=limit),
    )
    if as_json:
        print_json(found)
        return
    facts = (number("attempts"), prose("alert"), prose("problem"))
    listing = Listing("when (UTC)", "state", "target", "kind", *facts, heads=4)
    for row in found:
        one = row.message
        when = second(one.sent_at or one.due_at or one.last_at)
        listing.add(when, one.state, one.target, one.kind, str(one.attempts), row.title, one.error or "")
    listing.print(empty="No alerts.")
    if any(row.message.state is MessageState.FAILED for row in found):
        print_command("To test the targets", ["hookledger", "alerts", "test"])
    if len(found) >= limit:
        say(f"There may be more: --before {found[-1].message.id}")


@alerts.command()
@click.option("--target", help="Only to this target.")
@inbox_options
@prints_json
def test(inbox: Inbox, target: str | None, as_json: bool) -> None:
    """Send a test message to each target now

    Exits 8 if a target does not take it. PagerDuty opens an incident of severity info.
    """
    results = run_on(inbox, lambda context: messages.test(context, target))
    if as_json:
        print_json(results)
    else:
        listing = Listing("target", prose("result"), heads=1)
        for one in results:
            listing.add(one.target, one.problem or "sent")
        listing.print()
        if not results:
            status.print("No target is configured: add [alerts.targets.NAME] to hookledger.toml, or @inbox.alert.")
    if not results or any(one.problem for one in results):
        raise SystemExit(exits.UNEXPECTED_ANSWER)
