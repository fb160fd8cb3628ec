"""`hookledger replay` and `discard`: process an event again, or close it."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.text import Text

from ..errors import WrongState
from ..inbox import Inbox
from ..model import EventRow, History
from ..operate.preview import Fate, Preview, Verdict
from ..states import EffectState
from .common import (
    actor_option,
    looks_at_inbox,
    names_actor,
    print_json,
    prints_json,
    reason_option,
    run,
    status,
    table_console,
)
from .following import hindrances, say_next
from .look import coloured, moment, previewed
from .table import Listing, say, whole

COLOURS = {Verdict.SAFE: "green", Verdict.WILL_DO: "yellow", Verdict.NEEDS_A_DECISION: "magenta"}
OPEN = (EffectState.PLANNED, EffectState.STARTED, EffectState.UNKNOWN)


@click.command()
@click.argument("event")
@click.option(
    "--preview",
    "only_preview",
    is_flag=True,
    help="Print the preview; change nothing.",
)
@click.option(
    "--repeat-effect",
    "repeat",
    multiple=True,
    metavar="NAME[:KEY]",
    help="Perform a finished effect again; repeatable.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@reason_option(unless="--preview")
@actor_option
@looks_at_inbox
@prints_json
def replay(
    inbox: Inbox,
    event: str,
    only_preview: bool,
    repeat: tuple[str, ...],
    yes: bool,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Process an event again as a new run

    EVENT is an id, id prefix, event key or provider id. It must be processed, skipped, failed, discarded or in
    review. Effects that are done are skipped. The preview's verdict is one of:

    \b
    safe: no recorded effect runs; the event was processed before and its
      handler declares "converges"
    will do: the listed actions happen
    needs a decision: not allowed until you resolve the listed items

    --repeat-effect takes a name, NAME:KEY where the event has several, or an idempotency key. The effect is performed
    when the new run asks for it; a call gets a new idempotency key.
    """
    if not only_preview and not reason:
        raise click.UsageError("--reason is required unless --preview")

    async def look() -> tuple[History, Preview]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            history = await insight.event(event)
            return history, insight.preview(history, insight.repeated(history, repeat))

    history, preview = run(look())
    if not as_json:
        print_preview(preview)
    if only_preview:
        if as_json:
            print_json(previewed(preview))
        return
    if preview.verdict is Verdict.NEEDS_A_DECISION:
        raise WrongState(f"event {history.event.id}: {preview.words}")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Replay it as run {preview.run}?", abort=True, err=True)

    async def act() -> tuple[EventRow, list[str]]:
        async with inbox.opened() as store:
            actions = inbox.actions(store, actor)
            after = (await actions.replay(history.event, reason or "", repeat, shown=preview)).event
            return after, await hindrances(inbox, inbox.insight(store), after)

    after, hindered = run(act())
    if as_json:
        print_json({"preview": previewed(preview), "event": after})
    else:
        say_next(after, hindered, run=True)


def print_preview(preview: Preview) -> None:
    """The verdict, why, and each effect."""
    console, colour = table_console(), COLOURS[preview.verdict]
    console.print(f"Replay as run {preview.run}: [bold {colour}]{preview.verdict}[/]{':' if preview.deeds else ''}")
    for deed in preview.deeds:
        say(f"- {deed}", console)
    for reason in preview.reasons:
        say(reason, console)
    if not preview.effects:
        say("The ledger has no effect of this event.", console)
        return
    head = (whole("effect", head=True), whole("state", head=True), whole("how", head=True))
    facts = (whole("in a replay"), whole("done (UTC)"), whole("asked for by"), whole("key"))
    listing = Listing(*head, *facts, whole("idempotency key"))
    for effect in preview.effects:
        asked = f"claim {effect.claim}" if effect.run is None else f"run {effect.run}, claim {effect.claim}"
        listing.add(
            effect.name,
            coloured(effect.state),
            effect.kind,
            Text(effect.fate, "" if effect.fate is Fate.SKIPPED else "bold"),
            moment(effect.done_at),
            asked,
            effect.key,
            effect.idempotency_key or "",
        )
    listing.print(console)


@click.command()
@click.argument("event")
@names_actor
@looks_at_inbox
@prints_json
def discard(inbox: Inbox, event: str, reason: str, actor: str, as_json: bool) -> None:
    """Close an event without processing it

    EVENT is an id, id prefix, event key or provider id. It must be pending, retrying, failed or in review; it can be
    replayed later. Its effects stay as they are: those in the outbox are performed, unless `hookledger resolve
    --cancel` cancels them.
    """

    async def act() -> History:
        async with inbox.opened() as store:
            known = await inbox.insight(store).event(event)
            return await inbox.actions(store, actor).discard(known.event, reason)

    history = run(act())
    if as_json:
        print_json(msgspec.to_builtins(history.event))
        return
    status.print(f"Event {history.event.id} is {history.event.state}.")
    for effect in (known.effect for known in history.effects if known.effect.state in OPEN):
        say(f"Effect {effect.name} {effect.key} stays {effect.state}.")
