"""Turns database rows into the model's values, the same way for both stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol
from uuid import UUID

import msgspec

from ..ledger import Call, Effect, EffectHistory
from ..model import ActionRow, AttemptRow, Claimed, DeliveryRow, EventRow, Outcome, RequestRow, WorkerInfo
from ..states import (
    BY_NAME,
    AttemptOutcome,
    CallOutcome,
    DeliveryOutcome,
    EffectKind,
    EffectState,
    KeyOrigin,
    Repeat,
    State,
)
from .call_outcome import CallEnd, Standing
from .causes import cause_of
from .classify import Verdict
from .ops.pruning import Tombstone

Convert = Callable[[Any], Any]


class Row(Protocol):
    """A database row that answers to column names."""

    def __getitem__(self, key: str, /) -> Any: ...


def same(value: Any) -> Any:
    return value


class Rows:
    """`time` and `ident` turn a stored time and id into a datetime and a UUID."""

    def __init__(self, time: Convert = same, ident: Convert = same) -> None:
        self.time = time
        self.ident = ident

    def when(self, value: Any) -> Any:
        return None if value is None else self.time(value)

    def claimed(self, row: Row) -> Claimed:
        values = {name: row[name] for name in Claimed.__struct_fields__}
        values["id"] = self.ident(row["id"])
        values["key_origin"] = KeyOrigin(row["key_origin"])
        values["occurred_at"] = self.when(row["occurred_at"])
        values["received_at"] = self.time(row["received_at"])
        return Claimed(**values)

    def event(self, row: Row) -> EventRow:
        values = {name: row[name] for name in EventRow.__struct_fields__}
        values["id"], values["request_id"] = self.ident(row["id"]), self.ident(row["request_id"])
        values["state"], values["key_origin"] = State(row["state"]), KeyOrigin(row["key_origin"])
        values["attention"] = bool(row["attention"])
        for name in (
            "due_at",
            "leased_until",
            "claimed_at",
            "occurred_at",
            "received_at",
            "first_processed_at",
            "finished_at",
            "emptied_at",
        ):
            values[name] = self.when(row[name])
        return EventRow(**values)

    def delivery(self, row: Row) -> DeliveryRow:
        state = row["event_state"]
        return DeliveryRow(
            self.ident(row["request_id"]),
            row["item"],
            DeliveryOutcome(row["outcome"]),
            State(state) if state else None,
            row["delivery_id"],
            self.time(row["received_at"]),
            bool(row["kept"]),
            row["retry"],
        )

    def attempt(self, row: Row) -> AttemptRow:
        return AttemptRow(
            row["claim"],
            row["run"],
            row["worker"],
            self.time(row["started_at"]),
            self.time(row["ended_at"]),
            AttemptOutcome(row["outcome"]),
            row["error"],
        )

    def action(self, row: Row) -> ActionRow:
        return ActionRow(
            row["name"],
            row["actor"],
            row["reason"],
            self.time(row["at"]),
            row["subject"],
            row["from_state"],
            row["to_state"],
            None if row["replaced"] is None else row["replaced"].decode("utf-8", "replace"),
        )

    def request(self, row: Row) -> RequestRow:
        values = {name: row[name] for name in RequestRow.__struct_fields__}
        values["id"] = self.ident(row["id"])
        values["received_at"] = self.time(row["received_at"])
        values["signed_at"] = self.when(row["signed_at"])
        values["emptied_at"] = self.when(row["emptied_at"])
        return RequestRow(**values)

    def tombstone(self, row: Row) -> Tombstone:
        ident, when = self.ident(row["event_id"]), self.time(row["pruned_at"])
        return Tombstone(ident, row["source"], State(row["state"]), when)

    def effect(self, row: Row) -> Effect:
        values = {name: row[name] for name in Effect.__struct_fields__}
        values["event_id"] = self.ident(row["event_id"])
        values["kind"], values["state"] = EffectKind(row["kind"]), EffectState(row["state"])
        values["repeat"] = Repeat(row["repeat"]) if row["repeat"] else None
        values["expired"], values["called_done"] = bool(row["expired"]), bool(row["called_done"])
        for name in ("due_at", "leased_until", "created_at", "finished_at"):
            values[name] = self.when(row[name])
        return Effect(**values)

    def call(self, row: Row) -> Call:
        return Call(
            row["number"],
            row["generation"],
            row["worker"],
            self.time(row["started_at"]),
            self.when(row["ended_at"]),
            CallOutcome(row["outcome"]) if row["outcome"] else None,
            row["error"],
        )

    def effects(self, effects: Iterable[Row], calls: Iterable[Row]) -> tuple[EffectHistory, ...]:
        """Effects with their calls."""
        made: dict[bytes, list[Call]] = {}
        for row in calls:
            made.setdefault(row["identity"], []).append(self.call(row))
        return tuple(EffectHistory(self.effect(row), tuple(made.get(row["identity"], ()))) for row in effects)

    def worker(self, row: Row) -> WorkerInfo:
        handles = msgspec.json.decode(row["handles"], type=tuple[tuple[str, str], ...])
        return WorkerInfo(row["id"], handles, row["seen_ago"], row["stopped_at"] is not None)


# Asked of the class each time, a member costs a call.
_DUPLICATE, _SAME_BODY = DeliveryOutcome.DUPLICATE, DeliveryOutcome.SAME_BODY
NEW = frozenset({DeliveryOutcome.ACCEPTED, DeliveryOutcome.INVALID, DeliveryOutcome.RECONCILED})
"""The outcomes that make an event."""


Content = tuple[UUID, bytes]
"""An event and the fingerprint of a body that it had first."""


def unheld(verdicts: Iterable[Verdict]) -> set[Content]:
    """The known bodies in a batch whose events do not keep them any more: they were pruned, or never here."""
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


def standing(row: Row) -> Standing:
    return Standing(
        EffectKind(row["kind"]),
        Repeat(row["repeat"]) if row["repeat"] else None,
        EffectState(row["state"]),
        row["number"],
        row["decided"],
        row["decided_number"],
        row["result"],
    )


def told(calls: Iterable[Row], generation: int) -> list[CallEnd]:
    """The calls of one generation."""
    return [
        CallEnd(row["number"], CallOutcome(row["outcome"]) if row["outcome"] else None)
        for row in calls
        if row["generation"] == generation
    ]


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
    )
