"""Turns database rows into the model's values, the same way for both stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints
from uuid import UUID

from ..ids import stage_id
from ..ledger import Call, Effect, EffectHistory, Intent
from ..model import Outcome
from ..states import BY_NAME, DeliveryOutcome
from .causes import cause_of
from .classify import Verdict
from .history import ActionRow
from .session import Row

V = TypeVar("V")


def value_of(kind: type[V], row: Row, **given: Any) -> V:
    """Build a struct from the columns with the names of its fields; `given` replaces the columns of these names."""
    struct: Any = kind
    names, converted = _fields(struct, *given)
    values = {name: row[name] for name in names}
    for name, convert in converted:
        if values[name] is not None:
            values[name] = convert(values[name])
    return kind(**values, **given)


@cache
def _fields(kind: type, *given: str) -> tuple[Sequence[str], Sequence[tuple[str, Callable[[Any], Any]]]]:
    """The fields that are columns, and those of them that the drivers do not convert: enums and booleans."""
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in given}
    types = [(name, part) for name, hint in hints.items() for part in get_args(hint) or (hint,)]
    return tuple(hints), [(n, t) for n, t in types if isinstance(t, type) and (t is bool or issubclass(t, Enum))]


def action_of(row: Row) -> ActionRow:
    replaced = row["replaced"]
    return value_of(ActionRow, row, replaced=None if replaced is None else replaced.decode("utf-8", "replace"))


def effect_histories(effects: Iterable[Row], calls: Iterable[Row]) -> tuple[EffectHistory, ...]:
    """Effects with their calls."""
    made: dict[bytes, list[Call]] = {}
    for row in calls:
        made.setdefault(row["identity"], []).append(value_of(Call, row))
    return tuple(EffectHistory(value_of(Effect, row), tuple(made.get(row["identity"], ()))) for row in effects)


# Asked of the class each time, a member costs a call.
_DUPLICATE, _SAME_BODY = DeliveryOutcome.DUPLICATE, DeliveryOutcome.SAME_BODY
NEW = frozenset({DeliveryOutcome.ACCEPTED, DeliveryOutcome.INVALID, DeliveryOutcome.RECONCILED})
"""The outcomes that make an event."""


Content = tuple[UUID, bytes]
"""An event and the fingerprint of a body that it had first."""


def unheld(verdicts: Iterable[Verdict]) -> set[Content]:
    """Return the known bodies in a batch whose events do not keep them: pruned, or never recorded here."""
    return {
        (verdict.recorded.event_id, verdict.item.fingerprint)
        for verdict in verdicts
        if verdict.recorded.outcome is _SAME_BODY and not verdict.held
    }


def keeping(verdicts: Iterable[Verdict], held: Iterable[Content] = ()) -> Iterator[tuple[Verdict, bytes | None]]:
    """Each verdict, and the body that is kept with it: the first in its request that is new or quarantined keeps it,
    so once. Empty where the event with the same body keeps it, or an earlier delivery that met that event (`held`).
    Verdicts come as their requests did, one request after the other."""
    kept, bodies = None, set(held)
    for verdict in verdicts:
        arrival, recorded = verdict.arrival, verdict.recorded
        if arrival is kept or recorded.outcome is _DUPLICATE:
            yield verdict, None
            continue
        kept, body = arrival, arrival.body
        if recorded.outcome is _SAME_BODY and verdict.item.whole:
            content = recorded.event_id, verdict.item.fingerprint
            if verdict.held or content in bodies:
                body = b""
            bodies.add(content)
        yield verdict, body


WITH_CAUSE = frozenset({"reschedule", "wait", "fail", "review"})
"""The ways out of `processing` that have a cause."""


def outcome_values(outcome: Outcome) -> tuple[Any, ...]:
    """The columns of an outcome, in the order of the `settle` query."""
    return (
        outcome.id,
        outcome.claim,
        outcome.transition,
        BY_NAME[outcome.transition].target.value,
        outcome.reason,
        outcome.due_in,
        outcome.result,
        outcome.error,
        cause_of(outcome.reason, outcome.error, outcome.where) if outcome.transition in WITH_CAUSE else None,
        outcome.waits_for,
        outcome.traceparent,
    )


def stage_values(outcomes: Iterable[Outcome]) -> list[tuple[UUID, UUID, str]]:
    """The id, the event and the name of each stage that these outcomes begin."""
    return [(stage_id(outcome.id, stage), outcome.id, stage) for outcome in outcomes for stage in outcome.stages]


def intent_values(intent: Intent, event_id: Any = None) -> tuple[Any, ...]:
    """The columns that every new effect has, in the order of the queries `once`, `plan` and, after `kind`, `start`.
    `event_id`: as the database keeps it, if that is not a UUID."""
    where = intent.identity, intent.source, intent.name, intent.key
    return *where, event_id or intent.event_id, intent.claim, intent.arguments, intent.arguments_digest


def trace_values(intent: Intent) -> tuple[str | None, str | None]:
    """The columns of a planned effect by which its trace continues in the process that performs it."""
    return intent.traceparent, intent.correlation_id
