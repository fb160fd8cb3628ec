"""`hookledger retry` and `resolve`: decide about one event or effect, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click
import msgspec
from msgspec import UNSET

from ..errors import ConfigError
from ..inbox import Inbox
from ..ledger import Effect
from ..model import EventRow
from ..states import EffectKind, EffectState, State
from .common import default_actor, looks_at_inbox, print_json, prints_json, run
from .following import hindrances, say_next
from .table import say

F = TypeVar("F", bound=Callable[..., Any])


def names_actor(command: F) -> F:
    """Adds --reason and --actor."""
    for option in (
        click.option("--reason", required=True, envvar="HOOKLEDGER_REASON", help="Why, for the audit."),
        click.option("--actor", default=default_actor, envvar="HOOKLEDGER_ACTOR", help="Who asks."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("event")
@names_actor
@looks_at_inbox
@prints_json
def retry(inbox: Inbox, event: str, reason: str, actor: str, as_json: bool) -> None:
    """Send a failed, retrying or reviewed EVENT round again now, with a fresh budget."""

    async def act() -> tuple[EventRow, list[str]]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            known = await insight.event(event)
            after = (await inbox.actions(store, actor).retry(known.event, reason)).event
            return after, await hindrances(inbox, insight, after)

    after, hindered = run(act())
    if as_json:
        print_json(msgspec.to_builtins(after))
    else:
        say_next(after, hindered)


@click.command()
@click.argument("event")
@click.argument("effect")
@click.option("--happened", is_flag=True, help="You found that it happened.")
@click.option("--did-not-happen", is_flag=True, help="You found that it did not.")
@click.option("--cancel", is_flag=True, help="It is not to be done at all (outbox only).")
@click.option("--result", help="With --happened: what the call returned, as JSON; needed where the handler reads it.")
@names_actor
@looks_at_inbox
@prints_json
def resolve(
    inbox: Inbox,
    event: str,
    effect: str,
    happened: bool,
    did_not_happen: bool,
    cancel: bool,
    result: str | None,
    reason: str,
    actor: str,
    as_json: bool,
) -> None:
    """Decide about an EFFECT of an EVENT when nobody knows whether it happened, or when it failed.

    EFFECT is its name, NAME:KEY where the event has several, or its idempotency key. After --happened it is not done
    again; after --did-not-happen it is, under the same idempotency key. The event, or the outbox, goes on from there.
    """
    found: list[Literal["happened", "did_not_happen", "cancel"]] = []
    found += ["happened"] if happened else []
    found += ["did_not_happen"] if did_not_happen else []
    found += ["cancel"] if cancel else []
    if len(found) != 1:
        raise click.UsageError("say what you found: one of --happened, --did-not-happen and --cancel")
    [decision] = found
    try:
        value = UNSET if result is None else msgspec.json.decode(result)
    except msgspec.DecodeError as error:
        raise ConfigError(f"--result is not JSON: {error}") from error

    async def act() -> tuple[Effect, Effect, EventRow, list[str]]:
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            before = await insight.effect(event, effect)
            history = await inbox.actions(store, actor).resolve(before, decision, reason, value)
            [after] = [known.effect for known in history.effects if known.effect.identity == before.identity]
            is_left = after.state is EffectState.PLANNED or history.event.state is State.PENDING
            called = after if after.state is EffectState.PLANNED else None
            hindered = await hindrances(inbox, insight, history.event, called) if is_left else []
            return before, after, history.event, hindered

    before, after, owner, hindered = run(act())
    if as_json:
        print_json({"effect": after, "event": owner})
        return
    is_due = after.kind is EffectKind.LATER and after.state is EffectState.PLANNED
    then = ": a worker performs it" * is_due
    say(f"Effect {after.name} {after.key} was {before.state}, is {after.state}{then}.")
    say_next(owner, hindered)
