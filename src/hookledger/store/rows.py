"""Turns database rows into the model's values, the same way for both stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol
from uuid import UUID

from ..model import (
    ActionRow,
    AttemptRow,
    Claimed,
    DeliveryRow,
    EventRow,
    Outcome,
    RequestRow,
)
from ..states import BY_NAME, AttemptOutcome, DeliveryOutcome, KeyOrigin, State
from .judge import Verdict

Convert = Callable[[Any], Any]


class Row(Protocol):
    """A database row that answers to column names."""

    def __getitem__(self, key: str, /) -> Any: ...


def same(value: Any) -> Any:
    return value


class Rows:
    """`time` and `ident` turn a stored time and id into a datetime and a UUID."""

    def __init__(self, time: Convert = same, ident: Convert = same) -> None:
        self._time = time
        self._ident = ident

    def _when(self, value: Any) -> Any:
        return None if value is None else self._time(value)

    def claimed(self, row: Row) -> Claimed:
        values = {name: row[name] for name in Claimed.__struct_fields__}
        values["id"] = self._ident(row["id"])
        values["key_origin"] = KeyOrigin(row["key_origin"])
        values["occurred_at"] = self._when(row["occurred_at"])
        values["received_at"] = self._time(row["received_at"])
        return Claimed(**values)

    def event(self, row: Row) -> EventRow:
        values = {name: row[name] for name in EventRow.__struct_fields__}
        values["id"], values["request_id"] = self._ident(row["id"]), self._ident(row["request_id"])
        values["state"], values["key_origin"] = State(row["state"]), KeyOrigin(row["key_origin"])
        values["attention"] = bool(row["attention"])
        for name in (
            "due_at",
            "leased_until",
            "occurred_at",
            "received_at",
            "first_processed_at",
            "finished_at",
        ):
            values[name] = self._when(row[name])
        return EventRow(**values)

    def delivery(self, row: Row) -> DeliveryRow:
        state = row["event_state"]
        return DeliveryRow(
            self._ident(row["request_id"]),
            row["item"],
            DeliveryOutcome(row["outcome"]),
            State(state) if state else None,
            row["delivery_id"],
            self._time(row["received_at"]),
            bool(row["kept"]),
        )

    def attempt(self, row: Row) -> AttemptRow:
        return AttemptRow(
            row["claim"],
            row["run"],
            row["worker"],
            self._time(row["started_at"]),
            self._time(row["ended_at"]),
            AttemptOutcome(row["outcome"]),
            row["error"],
        )

    def action(self, row: Row) -> ActionRow:
        return ActionRow(
            row["name"],
            row["actor"],
            row["reason"],
            self._time(row["at"]),
            State(row["from_state"]),
            State(row["to_state"]),
        )

    def request(self, row: Row) -> RequestRow:
        values = {name: row[name] for name in RequestRow.__struct_fields__}
        values["id"] = self._ident(row["id"])
        values["received_at"] = self._time(row["received_at"])
        values["signed_at"] = self._when(row["signed_at"])
        return RequestRow(**values)


NEW = frozenset({DeliveryOutcome.ACCEPTED, DeliveryOutcome.INVALID})
"""The outcomes that make an event."""


def kept_requests(verdicts: Iterable[Verdict]) -> set[tuple[UUID, int]]:
    """The first item of each request that brought something new or odd: its bytes are kept once."""
    kept: dict[UUID, int] = {}
    for verdict in verdicts:
        if verdict.recorded.outcome is not DeliveryOutcome.DUPLICATE:
            kept.setdefault(verdict.arrival.id, verdict.place)
    return set(kept.items())


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
    )
