"""Effects: list and find them, decide an outcome, and retry one now."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from ..errors import BadResult, ConfigError, WrongState
from ..ids import operation_key
from ..ledger import Effect
from ..states import EffectKind, EffectState, Repeat
from ..store.history import History
from ..store.ops.attention import EffectPage, ListedEffect
from ..store.ops.audit import Audit
from ..store.ops.filters import EffectFilter
from . import search
from .context import Application, Context
from .errors import Ambiguous, NotFound


class EffectLine(Struct, frozen=True):
    """An effect in a list, without arguments and result."""

    event_id: UUID
    source: str
    name: str
    key: str
    state: EffectState
    since: datetime
    """For an unknown effect: when the first call was made that may have happened."""
    kind: EffectKind
    repeat: Repeat | None
    calls: int
    tries: int
    """Calls since it was planned or an operator retried it."""
    due_at: datetime | None
    leased_until: datetime | None
    """While a worker performs or checks it."""
    lane: str | None
    downstream: str
    idempotency_key: str | None
    fence: int
    why: str | None
    """Its alert, or the error of its last call; only for operators."""
    next: str
    """The command for the next step, without `hookledger`; empty if nothing is to decide."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"


def line(listed: ListedEffect, *, complete: bool = True) -> EffectLine:
    """Return an effect for a list. `complete`: with error text, which may quote a payload."""
    effect = listed.effect
    shared = {name: getattr(effect, name) for name in EffectLine.__struct_fields__ if hasattr(effect, name)}
    return EffectLine(
        **shared,
        since=listed.since,
        calls=effect.number,
        why=effect.alert or (effect.error if complete else None),
        next=next_step(effect),
    )


def next_step(effect: Effect) -> str:
    """Return the command that fits the effect's state."""
    where = f"{effect.event_id} {shlex.quote(effect.label)}"
    is_left = effect.due_at is None and effect.leased_until is None
    match effect.state:
        case EffectState.DONE | EffectState.CANCELLED if effect.alert is None:
            return ""
        case EffectState.STARTED:
            return ""
        case EffectState.UNKNOWN if is_left and (effect.kind is EffectKind.CALL or effect.repeat is Repeat.NEVER):
            return f"resolve {where}"
        case EffectState.UNKNOWN | EffectState.PLANNED | EffectState.FAILED if effect.kind is EffectKind.LATER:
            return f"effects try {where}" if effect.leased_until is None else ""
    return f"show {effect.event_id}"


async def page(context: Context, where: EffectFilter, *, before: str | None = None, limit: int = 50) -> EffectPage:
    """Effects by state, those of the newest event first; the page says where to continue."""
    return await context.store.attention.effects(where, before=before, limit=limit)


async def find(context: Context, reference: str, effect: str) -> Effect:
    """One call or outbox entry of an event: by its name, by NAME:KEY, or by its idempotency key."""
    history = await search.find(context, reference)
    known = [entry.effect for entry in history.effects if entry.effect.kind is not EffectKind.ONCE]
    return _the_one(known, effect)


def named(history: History, effects: Iterable[str]) -> list[Effect]:
    """Return the named effects of an event, as `find` names them; also those of `event.once`."""
    known = [entry.effect for entry in history.effects if not entry.effect.superseded]
    return [_the_one(known, effect) for effect in effects]


def _the_one(known: Sequence[Effect], effect: str) -> Effect:
    found = [entry for entry in known if effect in (entry.name, entry.label, _key(entry))]
    if len(found) > 1:
        several = ", ".join(f"{e.label} ({_key(e)})" for e in found)
        raise Ambiguous(f"the effect's name is ambiguous; give NAME:KEY or an idempotency key of: {several}")
    if not found:
        names = ", ".join(entry.label for entry in known) or "none"
        raise NotFound(f"the event has no effect {effect!r}; it has: {names}")
    return found[0]


def _key(effect: Effect) -> str:
    return operation_key(effect.identity, effect.generation)


async def resolve(
    context: Context,
    by: Audit,
    effect: Effect,
    decision: Literal["happened", "did_not_happen", "cancel"],
    result: object = UNSET,
) -> History:
    """Decide the outcome of an unknown or failed effect; then its event or the outbox continues. A call that happened
    needs its result if the handler reads it; None is a result."""
    kept = None
    if decision == "happened":
        kept = _kept_result(context.application, effect, result)
    elif result not in (UNSET, None):
        raise ConfigError("a result is allowed only with happened")
    await context.store.ledger.resolve(effect, decision, kept, *by)
    return await search.find(context, str(effect.event_id))


def needs_result(application: Application, effect: Effect) -> bool:
    """Whether an effect that happened needs a result because its handler may read it. Outbox results are never read,
    and a recorded result stays. An undeclared effect may need one."""
    declared = application.effects.find(effect.name)
    return effect.kind is EffectKind.CALL and effect.result is None and (declared is None or declared.needs_result)


def result_form(application: Application, effect: Effect) -> str | None:
    """Return an example of an effect's result as JSON; None if the application does not declare the effect."""
    declared = application.effects.find(effect.name)
    return None if declared is None else declared.form


def _kept_result(application: Application, effect: Effect, result: object) -> bytes | None:
    """Return the result of an effect that happened, as the ledger stores it; UNSET: none given. ConfigError if it is
    missing, BadResult if the handler cannot read it."""
    declared = application.effects.find(effect.name)
    if result is not UNSET:
        try:
            return msgspec.json.encode(result) if declared is None else declared.keep_result(result)
        except BadResult as error:
            assert declared is not None
            form = shlex.quote(declared.form)
            raise BadResult(f"{error}; give it as JSON of this form: --result {form}") from error
    if not needs_result(application, effect):
        return None
    if declared is None:
        raise ConfigError(
            f"effect {effect.name} may need the result of the call that happened: its declaration is not loaded "
            "here; name the application by --app, or say --result null if its handler reads no result"
        )
    says = f"effect {effect.name} needs the result of the call that happened: its handler reads it"
    raise ConfigError(f"{says}; add it as JSON of this form: --result {shlex.quote(declared.form)}")


async def try_now(context: Context, by: Audit, effect: Effect) -> History:
    """Have the outbox perform an effect now, with a fresh retry budget; its policy decides whether it is repeated.

    WrongState if the store does not allow it, or if the declared policy would only leave it to an operator again.
    """
    declared = context.application.effects.find(effect.name)
    is_left = effect.state is EffectState.UNKNOWN and effect.due_at is None and effect.leased_until is None
    is_settled = declared is None or declared.checker or declared.policy.may_repeat(effect.unknown_for)
    if is_left and not is_settled:
        raise WrongState(
            f"effect {effect.label} may have happened: its policy does not repeat it now; find out, then "
            f"hookledger resolve {effect.event_id} {effect.label} --happened or --did-not-happen"
        )
    await context.store.ledger.try_now(effect, *by)
    return await search.find(context, str(effect.event_id))
