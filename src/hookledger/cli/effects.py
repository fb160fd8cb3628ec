"""`hookledger effects`: calls and outbox entries by state, and retrying one now."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

import click
from rich.markup import escape

from ..inbox import Inbox
from ..ledger import Effect
from ..operate import effects as operate
from ..operate.context import Context
from ..operate.effects import EffectLine, line
from ..states import EffectState
from ..store.history import History
from ..store.ops.audit import Audit
from ..store.ops.filters import EffectFilter
from .common import audited, inbox_options, print_json, prints_json, run_on, second, status
from .failures import duration
from .filters import limit_option, source_option
from .groups import ListsByDefault
from .next_steps import hindrances, say_hindrances
from .table import Listing, coloured, number, print_command, prose, say


@click.group(cls=ListsByDefault)
def effects() -> None:
    """List effects by state, and retry one now

    `hookledger effects` lists those that are neither done nor cancelled; `hookledger effects try` performs one.
    """


@effects.command("list")
@click.option(
    "--state",
    multiple=True,
    type=click.Choice([state.value for state in EffectState]),
    help="Only in this state; repeatable. Default: all but done and cancelled.",
)
@click.option("--name", help="Only with this name, as declared.")
@source_option
@click.option("--before", metavar="CURSOR", help="Next page: the cursor printed at the end of the last one.")
@limit_option(50)
@inbox_options
@prints_json
def list_effects(
    inbox: Inbox,
    state: tuple[str, ...],
    name: str | None,
    source: str | None,
    before: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List effects, those of the newest event first"""
    where = EffectFilter(name=name, source=source)
    if state:
        where = EffectFilter(tuple(map(EffectState, state)), name, source)
    page = run_on(inbox, lambda context: operate.page(context, where, before=before, limit=limit))
    lines = [line(one) for one in page.effects]
    if as_json:
        print_json(lines)
    elif lines:
        _print(lines)
        _suggest(lines)
    else:
        status.print("No effects.")
    if page.next is not None:
        say(f"There are more: --before {page.next}")


def _print(lines: list[EffectLine]) -> None:
    facts = ("event", "how", "since (UTC)", number("calls"), prose("when"), prose("why"))
    listing, now = Listing("effect", "state", "source", *facts, heads=3), datetime.now(UTC)
    for one in lines:
        policy = f"{one.kind}, {one.repeat}" if one.repeat else str(one.kind)
        since = f"{second(one.since)} ({duration((now - one.since).total_seconds())})"
        figures = (str(one.event_id), policy, since, f"{one.calls:,}", _when(one, now))
        listing.add(one.label, coloured(one.state), one.source, *figures, one.why or "")
    listing.print()


def _suggest(lines: list[EffectLine]) -> None:
    """Print a command for the first effect that needs a decision, and for the first that can be retried."""
    decide = next((one for one in lines if one.next.startswith("resolve ")), None)
    if decide is not None:
        label = "To decide the outcome of one"
        print_command(label, ["hookledger", "show", str(decide.event_id)])
    retry = next((one for one in lines if one.next.startswith("effects try ")), None)
    if retry is not None:
        print_command("To retry one now", ["hookledger", *shlex.split(retry.next), "--reason", "WHY"])


def _when(one: EffectLine, now: datetime) -> str:
    if one.leased_until is not None:
        left = (one.leased_until - now).total_seconds()
        return f"in flight, lease ends in {duration(left)}" if left > 0 else f"lease ended {duration(-left)} ago"
    if one.due_at is None:
        return ""
    left = (one.due_at - now).total_seconds()
    return f"due in {duration(left)}" if left > 0 else f"due since {duration(-left)}"


@effects.command("try")
@click.argument("event")
@click.argument("effect")
@audited
@inbox_options
@prints_json
def try_(inbox: Inbox, event: str, effect: str, by: Audit, as_json: bool) -> None:
    """Retry an effect now, with a fresh retry budget

    EFFECT is a name, NAME:KEY where EVENT has several, or an idempotency key. It must be planned or failed in the
    outbox, or unknown with a check or policy that can settle it: not allowed for an effect that may have happened and
    is declared `never`. A worker performs it.
    """

    async def act(context: Context) -> tuple[Effect, History, list[str]]:
        known = await operate.find(context, event, effect)
        history = await operate.try_now(context, by, known)
        return known, history, await hindrances(context, history.event, known)

    before, history, hindered = run_on(inbox, act)
    after = history.effect(before.identity).effect
    if as_json:
        print_json({"effect": after, "event": history.event})
        return
    was = f"was {before.state}" + (f", is {after.state}" if after.state is not before.state else "")
    status.print(f"Effect {escape(before.label)} {was}: a worker performs it now.", soft_wrap=True)
    say_hindrances(hindered)
    print_command("To see the result", ["hookledger", "show", str(history.event.id)])
