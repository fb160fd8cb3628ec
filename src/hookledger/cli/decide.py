"""`hookledger retry` and `resolve`: decide about one event or effect, with a reason."""

from __future__ import annotations

from typing import Literal

import click
import msgspec
from msgspec import UNSET

from ..errors import ConfigError
from ..inbox import Inbox
from ..ledger import Effect
from ..operate import decide, effects, search
from ..operate.context import Context
from ..states import EffectKind, EffectState, State
from ..store.history import EventRow
from ..store.ops.audit import Audit
from .common import audited, inbox_options, print_json, prints_json, run_on
from .next_steps import Next, next_of, say_next
from .table import say


@click.command()
@click.argument("event")
@audited
@inbox_options
@prints_json
def retry(inbox: Inbox, event: str, by: Audit, as_json: bool) -> None:
    """Retry a failed, retrying or needs_review event now

    EVENT is an id, id prefix, event key or provider id. It continues the same run, with a fresh retry budget.
    """

    async def act(context: Context) -> tuple[EventRow, Next]:
        known = await search.find(context, event)
        after = (await decide.retry(context, by, known.event)).event
        return after, await next_of(context, after)

    after, follows = run_on(inbox, act)
    if as_json:
        print_json(after)
    else:
        say_next(after, follows)


@click.command()
@click.argument("event")
@click.argument("effect")
@click.option("--happened", is_flag=True, help="You found that it happened.")
@click.option("--did-not-happen", is_flag=True, help="You found that it did not.")
@click.option("--cancel", is_flag=True, help="Cancel it: never perform it (outbox only).")
@click.option("--result", help="With --happened: the call's result as JSON, if the handler reads it.")
@audited
@inbox_options
@prints_json
def resolve(
    inbox: Inbox,
    event: str,
    effect: str,
    happened: bool,
    did_not_happen: bool,
    cancel: bool,
    result: str | None,
    by: Audit,
    as_json: bool,
) -> None:
    """Decide the outcome of an unknown or failed effect

    EFFECT is a name, NAME:KEY where EVENT has several, or an idempotency key. After --happened it is not performed
    again; after --did-not-happen it is, under the same idempotency key. Then the event, or the outbox, continues.
    """
    found: list[Literal["happened", "did_not_happen", "cancel"]] = []
    found += ["happened"] if happened else []
    found += ["did_not_happen"] if did_not_happen else []
    found += ["cancel"] if cancel else []
    if len(found) != 1:
        raise click.UsageError("give exactly one of --happened, --did-not-happen and --cancel")
    [decision] = found
    try:
        value = UNSET if result is None else msgspec.json.decode(result)
    except msgspec.DecodeError as error:
        raise ConfigError(f"--result is not JSON: {error}") from error

    async def act(context: Context) -> tuple[Effect, Effect, EventRow, Next]:
        before = await effects.find(context, event, effect)
        history = await effects.resolve(context, by, before, decision, value)
        after = history.effect(before.identity).effect
        is_left = after.state is EffectState.PLANNED or history.event.state is State.PENDING
        called = after if after.state is EffectState.PLANNED else None
        follows = await next_of(context, history.event, called) if is_left else Next()
        return before, after, history.event, follows

    before, after, owner, follows = run_on(inbox, act)
    if as_json:
        print_json({"effect": after, "event": owner})
        return
    is_due = after.kind is EffectKind.LATER and after.state is EffectState.PLANNED
    then = ": a worker performs it" * is_due
    say(f"Effect {after.name} {after.key} was {before.state}, is {after.state}{then}.")
    say_next(owner, follows)
