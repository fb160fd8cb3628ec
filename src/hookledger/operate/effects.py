"""Effects by state, what to do about each, and having one done now."""

from __future__ import annotations

import shlex
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ..errors import WrongState
from ..identities import operation_key
from ..ledger import Effect
from ..states import EffectKind, EffectState, Repeat
from ..store.protocol import Store
from ..store.trouble import ListedEffect
from .insight import Insight


class EffectLine(Struct, frozen=True):
    """An effect as it is listed: without arguments and result."""

    event_id: UUID
    source: str
    name: str
    key: str
    state: EffectState
    since: datetime
    """Unknown: when the first call was made that may have happened."""
    kind: EffectKind
    repeat: Repeat | None
    calls: int
    tries: int
    """Since it was planned, or tried by an operator."""
    due_at: datetime | None
    leased_until: datetime | None
    """While a worker performs it, or looks at it."""
    lane: str | None
    downstream: str
    idempotency_key: str | None
    fence: int
    why: str | None
    """Its alert, or the error of its last call, which is for operators."""
    next: str
    """The command that fits, after `hookledger`; empty where there is nothing to decide."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"


def line(listed: ListedEffect, *, complete: bool = True) -> EffectLine:
    """`complete`: with the words of errors, which may quote a payload."""
    effect = listed.effect
    shared = {name: getattr(effect, name) for name in EffectLine.__struct_fields__ if hasattr(effect, name)}
    return EffectLine(
        **shared,
        since=listed.since,
        calls=effect.number,
        idempotency_key=None if effect.repeat is None else operation_key(effect.identity, effect.generation),
        why=effect.alert or (effect.error if complete else None),
        next=next_step(effect),
    )


def next_step(effect: Effect) -> str:
    """The command that fits its state."""
    where = f"{effect.event_id} {shlex.quote(f'{effect.name}:{effect.key}')}"
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


async def try_now(store: Store, insight: Insight, effect: Effect, actor: str, reason: str) -> None:
    """Refused, besides what the store refuses, where the loaded application says that the outbox would only leave it
    to an operator again."""
    declared = insight.declared_effect(effect.name)
    is_left = effect.state is EffectState.UNKNOWN and effect.due_at is None and effect.leased_until is None
    if declared is not None and is_left and not declared.checked and not declared.may_repeat(effect.doubtful_for):
        where = f"{effect.event_id} {effect.name}:{effect.key}"
        raise WrongState(
            f"effect {effect.name}:{effect.key} may have happened: its policy does not repeat it now; find out, then "
            f"hookledger resolve {where} --happened or --did-not-happen"
        )
    await store.ledger.try_now(effect, actor, reason)
