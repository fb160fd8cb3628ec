"""`hookledger pause` and `resume`: which sources and types workers do not process."""

from __future__ import annotations

import click

from ..inbox import Inbox
from ..operate import audit
from ..operate import pauses as operate
from ..operate.context import Context
from ..store.ops.audit import Audit
from ..store.ops.pauses import Pause
from .common import (
    actor_option,
    audited,
    inbox_options,
    print_json,
    prints_json,
    reason_option,
    run_on,
)
from .table import Listing, moment, prose, say


@click.command()
@click.argument("source", required=False)
@click.argument("type", default="*")
@click.option("--list", "listing", is_flag=True, help="List what is paused, by whom and why.")
@reason_option(unless="--list")
@actor_option
@inbox_options
@prints_json
def pause(
    inbox: Inbox,
    source: str | None,
    type: str,  # noqa: A002
    listing: bool,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Stop processing a source or event type

    TYPE may end in *; without it the whole SOURCE is paused. Workers do not claim its events until
    `hookledger resume`; running handlers finish. Deliveries are still accepted, and their events wait. Effects in the
    outbox are still performed: `hookledger circuits trip` stops the calls to a downstream. SOURCE/STAGE pauses a
    stage, which a pause of its SOURCE leaves alone.
    """
    if listing:
        if source is not None:
            raise click.UsageError("--list takes no SOURCE: it lists all pauses")
        _list(inbox, as_json=as_json)
        return
    if source is None:
        raise click.UsageError("SOURCE is missing: name one, or give --list")
    if reason is None:
        raise click.UsageError("--reason is required")
    by = audit.by(actor, reason)

    async def act(context: Context) -> tuple[Pause, list[str]]:
        made = await operate.pause(context, by, source, type)
        return made, await operate.running_stages(context, source)

    made, running = run_on(inbox, act)
    if as_json:
        print_json(made)
        return
    say(f"{_named(made.source, made.pattern)} is paused: its events wait until it is resumed.")
    if running:
        say(f"Its stages are not paused: {', '.join(running)}. What has begun there continues until you pause each.")


@click.command()
@click.argument("source")
@click.argument("type", default="*")
@audited
@inbox_options
def resume(inbox: Inbox, source: str, type: str, by: Audit) -> None:  # noqa: A002
    """Resume a paused source or event type

    Name SOURCE and TYPE as they were given to `hookledger pause`.
    """

    async def act(context: Context) -> list[Pause]:
        await operate.resume(context, by, source, type)
        return [left for left in await operate.pauses(context) if left.source == source]

    left = run_on(inbox, act)
    say(f"{_named(source, type)} is processed again.")
    for one in left:
        say(f"Still paused: {_named(one.source, one.pattern)}, by {one.actor}")


def _list(inbox: Inbox, *, as_json: bool) -> None:
    found = run_on(inbox, operate.pauses)
    if as_json:
        print_json(found)
        return
    listing = Listing("source", "type", "since (UTC)", "by", prose("why"), heads=2)
    for one in found:
        listing.add(one.source, one.pattern, moment(one.since), one.actor, one.reason)
    listing.print(empty="Nothing is paused.")


def _named(source: str, pattern: str) -> str:
    return f"Source {source}" if pattern == "*" else f"Source {source}, type {pattern},"
