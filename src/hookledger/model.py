"""The values that travel along the path. All frozen: a step makes a new one, or reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

from .ledger import EffectHistory
from .states import (
    AttemptOutcome,
    DeliveryOutcome,
    KeyOrigin,
    State,
)

Headers = tuple[tuple[bytes, bytes], ...]


def pack_headers(headers: Iterable[tuple[bytes, bytes]], *, without: frozenset[bytes] = frozenset()) -> bytes:
    """Headers as they are sent on the wire: no value can contain a line break."""
    return b"\r\n".join([b": ".join(pair) for pair in headers if pair[0] not in without])


def unpack_headers(packed: bytes) -> list[tuple[str, str]]:
    """Names and values; a byte that is not ASCII comes out as Latin-1, as HTTP has it."""
    lines = packed.decode("latin-1").split("\r\n") if packed else []
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


# ── receive ──────────────────────────────────────────────────────────────────
# An arrival and what is in it may travel to a process that writes: without the names of its fields (array_like).


class Request(Struct, frozen=True):
    """One HTTP request, its body exactly as received; header names are lower-case."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    remote: str | None = None

    def values(self, name: bytes) -> list[bytes]:
        """Every value of one header, in order."""
        return [value for key, value in self.headers if key == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of one header."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


LISTED = "api"
"""The scheme of what no signature proves: the provider listed it, asked with our credentials."""
REPAIR = "hookledger.repair"
"""The type of an event that an operator made, so that the source's repair handler runs."""


class Proof(Struct, frozen=True, array_like=True):
    """How a request was found authentic."""

    scheme: str
    secret: str
    """A short fingerprint of the secret that matched; never the secret."""
    signed_at: float | None = None


class Item(Struct, frozen=True, array_like=True):
    """One event found in a request, before it is known whether it is new."""

    key: str
    """The event key as shown to people: cleaned, at most 255 characters."""
    key_origin: KeyOrigin
    identity: bytes
    """Digest of source and exact key: what the unique constraint decides on."""
    fingerprint: bytes
    """Digest of the content less the provider's volatile fields."""
    type: str
    body_identity: bytes | None = None
    """Digest of source and body, whatever the type, where key or type is not covered by the signature."""
    provider_id: str | None = None
    object_id: str | None = None
    occurred_at: float | None = None
    delivery_id: str | None = None
    invalid: str | None = None
    """Why the content cannot be handled; the event is recorded in the dead letter."""
    skip: str | None = None
    """Why the event is recorded as skipped."""
    review: str | None = None
    """Why a person must decide about it first."""
    type_identity: bytes | None = None
    """The body's with the type, for a type that may share its body with others."""
    body_group: bytes = b""
    """The types that it may share its body with; kept with the body's identity."""
    token_identities: tuple[bytes, ...] = ()
    """Digests of what is signed without the body: each proves one event."""
    repeats: bool = False
    """Identical bodies are each an event: the provider repeats them on purpose, and the body shows the type."""
    whole: bool = True
    """Whether it is all that its request holds."""
    alert: str | None = None
    """What to tell operators if it is quarantined."""
    account: str | None = None
    """On whose behalf, where the source hears of several accounts."""
    retry: str | None = None
    """What the delivery says of being a retry."""

    @property
    def by_key_alone(self) -> bool:
        """Whether nothing but its key tells whether it is new."""
        return self.body_identity is None and not self.token_identities


class Arrival(Struct, frozen=True, array_like=True):
    """One authentic request and the events in it, ready to be recorded in one commit."""

    id: UUID
    source: str
    query: bytes
    """Less the secrets that the contract names, as the headers."""
    headers: bytes
    """As they are sent on the wire."""
    body: bytes
    remote: str | None
    proof: Proof
    items: tuple[Item, ...]
    event_ids: tuple[UUID, ...]
    """The id each item's event gets if it turns out to be new."""
    reconciled: bool = False
    """No delivery brought it: it was found in the provider's log, or made by an operator."""

    @property
    def unsigned(self) -> bool:
        """Whether its bytes are the provider's API's, which writes the same content in its own way."""
        return self.proof.scheme == LISTED


class Recorded(Struct, frozen=True):
    """What one item turned out to be."""

    outcome: DeliveryOutcome
    event_id: UUID
    state: State | None = None
    """The known event's state at that moment; None for a new one."""


# ── work ─────────────────────────────────────────────────────────────────────


class Kind(Struct, frozen=True):
    """One source and event type."""

    source: str
    type: str


Pattern = tuple[str, str]
"""A source, and a type or the beginning of types with `*` after it: what a handler takes."""


def covers(pattern: str, kind: str) -> bool:
    """Whether a type, or a pattern ending in `*`, takes this type. No pattern takes what we call our own."""
    if kind == pattern:
        return True
    return pattern.endswith("*") and kind.startswith(pattern[:-1]) and kind != REPAIR


class Waiting(Struct, frozen=True):
    """A kind with events in the queue, and when the first of them is due."""

    kind: Kind
    due_in: float
    """Seconds until the first is due; negative when overdue."""
    alone: bool = False
    """Events that crashed their worker twice: nothing may run beside them."""


class Claimed(Struct, frozen=True):
    """An event with a worker's right to advance it."""

    id: UUID
    claim: int
    """The fencing number: every later write names it."""
    source: str
    type: str
    key: str
    key_origin: KeyOrigin
    provider_id: str | None
    object_id: str | None
    occurred_at: datetime | None
    received_at: datetime
    run: int
    attempts: int
    """Attempts of this run, this one included."""
    snoozes: int
    crashes: int
    run_age: float
    """Seconds since this run began."""
    item: int
    headers: bytes
    query: bytes
    body: bytes


class Outcome(Struct, frozen=True):
    """How an attempt ended, and so which way its event leaves `processing`."""

    id: UUID
    claim: int
    transition: Literal["complete", "skip", "reschedule", "wait", "fail", "review", "release"]
    reason: str | None = None
    due_in: float = 0.0
    result: str | None = None
    error: str | None = None
    """The traceback."""
    where: str | None = None
    """The handler, and FILE:LINE of the user's code that failed: part of the cause."""


class Expired(Struct, frozen=True):
    """An event whose lease ran out under its worker."""

    id: UUID
    claim: int
    source: str
    type: str
    attempts: int
    crashes: int
    run_age: float
    worker: str | None


class Rescue(Struct, frozen=True):
    """What becomes of an expired event: due again after a backoff, or the dead letter."""

    id: UUID
    claim: int
    due_in: float | None
    """None: the budget is exhausted."""
    reason: str


class WorkerInfo(Struct, frozen=True):
    """A worker as the others see it."""

    id: str
    handles: tuple[tuple[str, str], ...]
    """(source, type pattern) of every handler it has."""
    seen_ago: float
    left: bool = False
    """Whether it stopped, and said so."""

    def alive(self, lease: float) -> bool:
        """Whether it was seen within a lease, and has not stopped since."""
        return not self.left and self.seen_ago <= lease


# ── operate ──────────────────────────────────────────────────────────────────


class EventRow(Struct, frozen=True):
    """An event as operators see it."""

    id: UUID
    source: str
    key: str
    key_origin: KeyOrigin
    provider_id: str | None
    object_id: str | None
    type: str
    state: State
    reason: str | None
    attention: bool
    run: int
    claim: int
    attempts: int
    snoozes: int
    crashes: int
    due_at: datetime | None
    leased_until: datetime | None
    claimed_at: datetime | None
    worker: str | None
    occurred_at: datetime | None
    received_at: datetime
    first_processed_at: datetime | None
    finished_at: datetime | None
    result: str | None
    error: str | None
    request_id: UUID
    item: int
    deliveries: int
    alert: str | None
    """Why a person should look, apart from its effects."""
    cause: str | None
    """Why it is in trouble, without what differs from one event to the next; kept until it is settled otherwise."""
    emptied_at: datetime | None = None
    """When retention or an erasure took its bytes away; it cannot be replayed since."""
    account: str | None = None
    """On whose behalf, where the source hears of several accounts."""


class DeliveryRow(Struct, frozen=True):
    request_id: UUID
    item: int
    outcome: DeliveryOutcome
    event_state: State | None
    delivery_id: str | None
    received_at: datetime
    kept: bool
    """Whether the request's bytes were kept."""
    retry: str | None = None
    """What it said of being a retry: its number, and why."""


class AttemptRow(Struct, frozen=True):
    claim: int
    run: int
    worker: str | None
    started_at: datetime
    ended_at: datetime
    outcome: AttemptOutcome
    error: str | None


class RequestRow(Struct, frozen=True):
    id: UUID
    source: str
    received_at: datetime
    query: bytes
    headers: bytes
    body: bytes
    remote: str | None
    scheme: str
    secret: str
    signed_at: datetime | None
    emptied_at: datetime | None = None
    """When its bytes, headers and query were taken away."""


class ActionRow(Struct, frozen=True):
    name: str
    actor: str
    reason: str
    at: datetime
    subject: str | None
    """The effect or circuit it was about, or the run that a replay began: `run 2`. None for the event itself."""
    from_state: str
    to_state: str
    replaced: str | None = None
    """The recorded result of the effect, as JSON, where the decision changed it. For operators, as results are."""


class History(Struct, frozen=True):
    """Everything known of one event."""

    event: EventRow
    request: RequestRow | None
    deliveries: tuple[DeliveryRow, ...]
    attempts: tuple[AttemptRow, ...]
    effects: tuple[EffectHistory, ...]
    actions: tuple[ActionRow, ...]
    body_of: UUID | None = None
    """The event that had its body before: its type repeats or shares bodies, or an operator admitted it."""

    @property
    def kept(self) -> bool:
        """Whether its bytes are."""
        return self.request is not None and self.request.emptied_at is None


class Evidence(Struct, frozen=True):
    """As much of a history as a preview needs; the effects without their calls."""

    event: EventRow
    kept: bool
    attempts: tuple[AttemptRow, ...]
    effects: tuple[EffectHistory, ...]


class Health(Struct, frozen=True):
    """What `/readyz` reports."""

    writable: bool
    schema: int
    clock_skew: float
    """Seconds that the database's clock is ahead of this host's."""
    problem: str | None = None
