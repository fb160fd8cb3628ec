"""The values of the ledger: requested effects, recorded effects and their calls; guards and what they answered."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

from .ids import operation_key
from .states import CallOutcome, EffectKind, EffectState, Repeat

UNKNOWN_ARGUMENTS = "waits for a worker that knows its arguments"
"""Prefix of an outbox entry's reason if it was planned for another version of its function. Queries match it."""


class Intent(Struct, frozen=True):
    """An effect that a handler requests."""

    identity: bytes
    kind: EffectKind
    source: str
    """The event's source."""
    name: str
    key: str
    event_id: UUID
    claim: int
    """The attempt's fencing token."""
    arguments: bytes = b"{}"
    """JSON."""
    arguments_digest: bytes = b""
    """Digest of the arguments that identify the effect."""
    repeat: Repeat | None = None
    """None for `once`, whose outcome is always known."""
    downstream: str = ""
    """The downstream whose circuit guards the call."""
    lane: str | None = None
    """The entity for which effects of this name are performed in order."""
    lease: float = 0.0
    """Seconds until a call without a result counts as unknown."""
    traceparent: str | None = None
    """The span of the attempt that asks for it, if the application has tracing."""
    correlation_id: str | None = None
    """The delivery's; None: the event's id."""
    event_key: str | None = None


class Known(Struct, frozen=True):
    """What a handler that plans an effect needs to know about the recorded one with the same identity."""

    kind: EffectKind
    state: EffectState
    arguments_digest: bytes


class Effect(Struct, frozen=True):
    """One recorded effect."""

    identity: bytes
    kind: EffectKind
    source: str
    name: str
    key: str
    event_id: UUID
    claim: int
    arguments: bytes
    arguments_digest: bytes
    repeat: Repeat | None
    downstream: str
    lane: str | None
    state: EffectState
    generation: int
    """Increases with each repetition that an operator requests."""
    fence: int
    """The fencing token: increases with each claim; every change names it."""
    number: int
    """Number of the newest call; 0 before the first."""
    tries: int
    """Calls since it was planned."""
    due_at: datetime | None
    leased_until: datetime | None
    worker: str | None
    created_at: datetime
    finished_at: datetime | None
    result: bytes | None
    """JSON."""
    error: str | None
    alert: str | None
    """The evidence that contradicts a decision about it."""
    decided: str | None
    """`happened` or `did_not_happen`, by its check or an operator."""
    called_done: bool
    """Whether a call of this generation returned done."""
    expired: bool
    """Whether it is started and its lease has expired."""
    lease_left: float
    """Seconds; 0 without a lease."""
    unknown_for: float | None
    """Seconds since the first call that may have been sent; None without such a call."""
    age: float
    """Seconds since it was created or planned again."""
    traceparent: str | None = None
    """The span of the attempt that planned it."""
    correlation_id: str | None = None
    """The delivery's; None: the event's id."""
    event_key: str | None = None
    """None: its event is gone."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"

    @property
    def idempotency_key(self) -> str | None:
        """What the downstream gets; None for a `once`, which calls none."""
        return None if self.repeat is None else operation_key(self.identity, self.generation)

    @property
    def superseded(self) -> bool:
        """Whether it is a `once` that its repetition superseded: kept as evidence, blocks nothing. Only a repetition
        changes a `once`."""
        return self.kind is EffectKind.ONCE and self.fence > 0


class Call(Struct, frozen=True):
    """One physical call."""

    number: int
    generation: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: CallOutcome | None
    error: str | None


class Started(Struct, frozen=True):
    """The right to make one call."""

    identity: bytes
    fence: int
    number: int
    generation: int


class Completion(Struct, frozen=True):
    """How one call ended."""

    identity: bytes
    number: int
    outcome: CallOutcome
    result: bytes | None = None
    error: str | None = None
    due_in: float | None = None
    """Seconds until the outbox retries; None: it does not."""
    unless_ended: bool = False
    """Apply it only if the call has no outcome yet, not even unknown."""


class Concluded(Struct, frozen=True):
    """The effect's state after a completion."""

    state: EffectState
    alert: str | None = None


class EffectHistory(Struct, frozen=True):
    """An effect with its calls."""

    effect: Effect
    calls: tuple[Call, ...]


# ── guards ───────────────────────────────────────────────────────────────────

Tie = Literal["rank", "arrival", "id"]
"""What decides between two events with the same version: the rank of their types, when they arrived, or their ids."""
FIRST, MIDDLE, LAST = 0, 1, 2
"""Ranks of types."""
Order = tuple[bytes, int, datetime, bytes]
"""The order of events at one guard, which is total: version, rank of the type, arrival, id."""

_LOST: dict[Tie, str] = {
    "rank": "its type ranks before the other's",
    "arrival": "it arrived before the other",
    "id": "it arrived with the other, and its id is lower",
}
_WON: dict[Tie, str] = {
    "rank": "its type ranks after the other's",
    "arrival": "it arrived after the other",
    "id": "it arrived with the other, and its id is higher",
}
_OTHER = re.compile(r" by [^\n]{1,90}? was applied, this is ")
MAX_WORD = 80
"""Characters of a name, key or version in a sentence."""


class Version(Struct, frozen=True):
    """A version as guards compare it."""

    kind: str
    """What it is made of: `number`, `time`, or several of them, such as `number,time`."""
    position: bytes
    """Bytes that compare as versions of this kind do."""
    text: str
    """As it was given, for people."""


class GuardRequest(Struct, frozen=True):
    """May this event write one projection of one entity?"""

    identity: bytes
    source: str
    name: str
    key: str
    event_id: UUID
    event_key: str
    claim: int
    version: str
    kind: str
    position: bytes
    rank: int
    """Of the event's type."""
    received_at: datetime
    approved: bool = False
    """Whether an operator let this run pass: a version of another kind replaces the one that was applied."""

    @property
    def order(self) -> Order:
        return _order(self)


class Guard(Struct, frozen=True):
    """The newest version that was applied to one projection of one entity, and the event that it is of."""

    identity: bytes
    source: str
    name: str
    key: str
    kind: str
    version: str
    position: bytes
    rank: int
    received_at: datetime
    event_id: UUID
    event_key: str
    claim: int
    applied_at: datetime
    ties: int
    """How often two events had the same version."""
    tie: Tie | None
    """What decided between its event and the replaced one, where both had this version."""
    replaced_version: str | None
    replaced_event_id: UUID | None

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"

    @property
    def order(self) -> Order:
        return _order(self)


class GuardAnswer(Struct, frozen=True):
    """What a guard answered one attempt."""

    identity: bytes
    event_id: UUID
    claim: int
    name: str
    key: str
    kind: str
    version: str
    position: bytes
    rank: int
    applied: bool
    """Whether the event may write; else it is stale."""
    tie: Tie | None
    """What decided between it and the other event, where both have this version."""
    other_version: str | None
    """What the guard had before, of another event; None: nothing."""
    other_event_id: UUID | None
    other_key: str | None
    """The other event's key; None where only its id is known."""
    at: datetime | None = None
    """When; None before it is recorded."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"

    @property
    def words(self) -> str:
        """Return the answer as a sentence: the only place where it is made."""
        about, mine = f"{_short(self.name)} {_short(self.key)}", _short(self.version)
        other = _short(self.other_key) if self.other_key else f"event {self.other_event_id}"
        if not self.applied:
            tie = f"; a tie: {_LOST[self.tie]}" if self.tie else ""
            return (
                f"stale for {about}: version {_short(self.other_version or '')} by {other} was applied, "
                f"this is {mine}{tie}"
            )
        after = f", after {_short(self.other_version)} by {other}" if self.other_version else ""
        return f"applied to {about}: version {mine}{after}{f'; a tie: {_WON[self.tie]}' if self.tie else ''}"


def _order(of: GuardRequest | Guard) -> Order:
    return of.position, of.rank, of.received_at, of.event_id.bytes


class GuardHistory(Struct, frozen=True):
    """An answer, and the guard as it is now."""

    answer: GuardAnswer
    guard: Guard | None


def answered(
    request: GuardRequest, applied: bool, tie: Tie | None, version: str | None, event_id: UUID | None, key: str | None
) -> GuardAnswer:
    """Return the answer to a request. `version`, `event_id`, `key`: of the other event."""
    shared = {name: getattr(request, name) for name in GuardAnswer.__struct_fields__ if hasattr(request, name)}
    return GuardAnswer(
        **shared, applied=applied, tie=tie, other_version=version, other_event_id=event_id, other_key=key
    )


def tie_of(request: GuardRequest, guard: Guard) -> Tie | None:
    """Return what decides between an event and the guard's, if both have the same version. PostgreSQL has it as
    SQL: the query `tie`."""
    if guard.event_id == request.event_id or (guard.kind, guard.position) != (request.kind, request.position):
        return None
    if guard.rank != request.rank:
        return "rank"
    return "arrival" if guard.received_at != request.received_at else "id"


def without_other_key(text: str | None) -> str | None:
    """Return a text that may have the words of a stale answer without the other event's key."""
    return None if text is None else _OTHER.sub(" by … was applied, this is ", text)


def changed_kind(request: GuardRequest, kind: str, version: str, event_id: UUID) -> str:
    """Return why a version cannot be compared with the guard's."""
    return (
        f"the version of {_short(request.name)} {_short(request.key)} changed its kind: {_short(version)} by "
        f"event {event_id} is a {kind}, this is {_short(request.version)}, a {request.kind}: give event.newer one "
        "kind of version for each name"
    )


def _short(text: str) -> str:
    return text if len(text) <= MAX_WORD else f"{text[: MAX_WORD - 1]}…"
