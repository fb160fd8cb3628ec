"""What a store gives to another inbox and takes from one: all rows of one event, as plain values.

Pure but for the protocol: which columns there are, and what becomes of what was not finished where it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct

from ..errors import BadData
from ..states import FINAL, EffectKind, EffectState, State

Line = dict[str, list[dict[str, Any]]]
"""The rows of one event, by table; `events` has one."""

IDENT, TIME, BYTES, FLAG, PLAIN = "ident", "time", "bytes", "flag", "plain"
_MARKS = {"u": IDENT, "t": TIME, "b": BYTES, "f": FLAG}


def _columns(text: str) -> dict[str, str]:
    pairs = (word.partition(":") for word in text.split())
    return {name: _MARKS.get(mark, PLAIN) for name, _, mark in pairs}


TABLES: dict[str, dict[str, str]] = {
    "events": _columns(
        "id:u source type key key_origin provider_id object_id occurred_at:t fingerprint:b request_id:u item "
        "received_at:t state reason attention:f run run_started_at:t claim attempts snoozes crashes due_at:t "
        "leased_until:t claimed_at:t worker first_processed_at:t finished_at:t result error alert cause emptied_at:t "
        "account"
    ),
    "requests": _columns(
        "id:u source received_at:t query:b headers:b body:b remote scheme secret signed_at:t emptied_at:t"
    ),
    "deliveries": _columns(
        "request_id:u item event_id:u source received_at:t outcome event_state delivery_id fingerprint:b retry"
    ),
    "attempts": _columns("event_id:u claim run worker started_at:t ended_at:t outcome error"),
    "effects": _columns(
        "identity:b kind source name key event_id:u claim arguments:b arguments_digest:b repeat downstream lane "
        "place state generation fence number tries planned_at:t due_at:t leased_until:t worker created_at:t "
        "finished_at:t result:b error alert decided decided_number"
    ),
    "effect_calls": _columns("identity:b number generation worker started_at:t ended_at:t outcome error"),
    "actions": _columns("id:u at:t name actor reason event_id:u from_state to_state subject"),
    "identities": _columns("identity:b kind source event_id:u fingerprint:b"),
}
"""What goes into a file, and what each column is. New columns that an import can do without need not be here."""
LATER = frozenset({"account", "retry"})
"""Columns that files of earlier versions lack."""


class Taken(Struct):
    """What became of the lines of an import."""

    new: int = 0
    known: int = 0
    """Their events are here already, or were and are pruned."""
    taken: list[UUID] = []
    """Their keys belong to other events here."""
    waiting: list[UUID] = []
    """Made of a delivery that another event met, which is not here."""
    held: int = 0
    """Of the new ones, those that were not finished and wait for a person."""

    def add(self, other: Taken) -> None:
        self.new += other.new
        self.known += other.known
        self.held += other.held
        self.taken += other.taken
        self.waiting += other.waiting


class Transfer(Protocol):
    """`store.transfer`."""

    async def identities(self, event_ids: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
        """The identities of these events. Reads them all: ask for many events at a time."""
        ...

    async def rows(self, event_id: UUID) -> Line | None:
        """Everything else that there is of an event; None when it is gone."""
        ...

    async def take_in(self, lines: Sequence[Line], actor: str, reason: str, *, take_over: bool = False) -> Taken:
        """Take events of another inbox with all that is known of them, each audited, all in one transaction.

        What is here already is passed over. What was not finished there waits for a person here, and its outbox
        rests, so that nothing is done in two places; with `take_over` it goes on here. Raises BadData, and takes
        nothing, when a row is impossible.
        """
        ...


def own_identities(line: Line) -> list[bytes]:
    """Those that nobody else may have; a body may be another's."""
    found = [row["identity"] for row in line["identities"] if row["kind"] != "body"]
    if not found:
        raise BadData(f"event {line['events'][0]['id']} has no identity: it could come in again as new")
    return found


def met(line: Line) -> UUID | None:
    """The event that an admitted one's delivery met."""
    [event] = line["events"]
    if event["key_origin"] != "admitted":
        return None
    place = (event["request_id"], event["item"])
    found: list[UUID] = [d["event_id"] for d in line["deliveries"] if (d["request_id"], d["item"]) == place]
    return found[0] if found else None


def arriving(line: Line, take_over: bool) -> Line:
    """The rows as they are to be here: leases and places in lanes are not, and what was not finished is held."""
    effects = [_effect(row, take_over) for row in line["effects"]]
    [event] = line["events"]
    is_open = any(row["state"] in ("planned", "started", "unknown") for row in effects)
    arrived = _event(event, take_over, is_open)
    arrived["attention"] = arrived["attention"] or any(row["state"] == "unknown" for row in effects)
    return {**line, "events": [arrived], "effects": effects}


def is_held(line: Line) -> bool:
    state = State(line["events"][0]["state"])
    return state not in FINAL


def _event(event: dict[str, Any], take_over: bool, is_open: bool) -> dict[str, Any]:
    state = State(event["state"])
    event = {**event, "leased_until": None}
    if state in FINAL:
        return {**event, "attention": event["attention"] or is_open}
    claim = event["claim"] + (state is State.PROCESSING)
    if state is State.NEEDS_REVIEW:
        return event
    if not take_over:
        words = f"imported while it was {state}: see that it is not processed where it comes from, then retry"
        return {**event, "state": "needs_review", "reason": words, "due_at": None, "claim": claim}
    if state is State.PROCESSING:
        return {**event, "state": "pending", "due_at": event["run_started_at"], "claim": claim}
    return event


def _effect(effect: dict[str, Any], take_over: bool) -> dict[str, Any]:
    state = EffectState(effect["state"])
    effect = {**effect, "lane": None, "place": None, "leased_until": None}
    if state is EffectState.STARTED:
        return {**effect, "state": "unknown", "due_at": None, "fence": effect["fence"] + 1}
    if take_over:
        return effect
    if state is EffectState.PLANNED and effect["kind"] == EffectKind.LATER.value:
        return {**effect, "kind": "call", "due_at": None, "fence": effect["fence"] + 1}
    return {**effect, "due_at": None}
