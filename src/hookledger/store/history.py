"""What operators see of one event: its row, its deliveries and attempts, and its whole history. All are frozen."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ..ledger import EffectHistory, GuardHistory
from ..states import AttemptOutcome, DeliveryOutcome, KeyOrigin, State


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
    """Why an operator should look at it, other than its effects."""
    cause: str | None
    """Why it fails, without the parts that differ between events; kept until the event has another outcome."""
    emptied_at: datetime | None = None
    """When retention or an erasure deleted its bytes; it cannot be replayed since."""
    account: str | None = None
    """The account that it belongs to, if the source serves several accounts."""
    entity: str | None = None
    """What it is about, if its source has entities."""
    order_at: datetime | None = None
    """Its place among the events of its entity; None: it is not ordered."""
    ready_at: datetime | None = None
    """When it is due once it is its turn; None: it is first, or not ordered."""
    hold: bool = False
    """Whether what follows it in its entity waits while it is failed or in review."""
    waits_for: str | None = None
    """The entity that it waits for."""
    approval_id: UUID | None = None
    """The audit log entry by which an operator let this run pass a review; null when the run is over."""
    parent: UUID | None = None
    """The event that it is a stage of."""
    stage: str | None = None
    """The stage's name; its source is NAME/STAGE."""
    version: str = ""
    """The version by which its handler is selected; empty: it has none."""


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
    """The provider's retry number and reason, if it says that it is a retry."""


class AttemptRow(Struct, frozen=True):
    claim: int
    run: int
    worker: str | None
    started_at: datetime
    ended_at: datetime
    outcome: AttemptOutcome
    error: str | None
    traceparent: str | None = None
    """Its span, if the application has tracing."""


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
    """When its bytes, headers and query were deleted."""


class ActionRow(Struct, frozen=True):
    name: str
    actor: str
    reason: str
    at: datetime
    subject: str | None
    """The effect, circuit or review that it concerned, or the run that it began: `run 2`. None: the event itself."""
    from_state: str
    to_state: str
    replaced: str | None = None
    """What it answered or changed: the reason of a review, or an effect's result as JSON. For operators only."""


class AnswerRow(Struct, frozen=True):
    """What the event's handler answered."""

    run: int
    """The run that answered."""
    status: int
    headers: bytes
    """In wire form."""
    body: bytes
    answered_at: datetime
    expires_at: datetime
    """Redeliveries get it until then."""
    expired: bool


class OtherEvent(Struct, frozen=True):
    """Another event of the same entity."""

    id: UUID
    key: str
    state: State


class Turn(Struct, frozen=True):
    """Why an ordered event is not processed yet."""

    first: OtherEvent | None
    """The event of its entity that has the turn."""
    held_by: OtherEvent | None
    """An earlier one that has failed or is in review: by the source's rule this one waits for a decision about it."""

    @property
    def words(self) -> str:
        if self.held_by is not None:
            return f"held: {self.held_by.key} of the same entity is {self.held_by.state}; decide about it first"
        if self.first is not None:
            return f"waits for its turn after {self.first.key}, which is {self.first.state}"
        return "waits for its turn"


class History(Struct, frozen=True):
    """Everything recorded about one event."""

    event: EventRow
    request: RequestRow | None
    deliveries: tuple[DeliveryRow, ...]
    attempts: tuple[AttemptRow, ...]
    effects: tuple[EffectHistory, ...]
    actions: tuple[ActionRow, ...]
    body_of: UUID | None = None
    """An earlier event with the same body: its type repeats or shares bodies, or an operator accepted it."""
    turn: Turn | None = None
    """Why it is not its turn, if it is ordered."""
    guards: tuple[GuardHistory, ...] = ()
    stages: tuple[EventRow, ...] = ()
    """Its stages, by name."""
    answer: AnswerRow | None = None
    """What its handler answered, while that is kept."""
    held_by: OtherEvent | None = None
    """The earlier event of its entity behind which it is held, or would be if it were due."""

    def effect(self, identity: bytes) -> EffectHistory:
        """Return the effect with this identity."""
        [found] = [known for known in self.effects if known.effect.identity == identity]
        return found

    @property
    def kept(self) -> bool:
        """Whether its bytes are kept."""
        return self.request is not None and self.request.emptied_at is None


class Evidence(Struct, frozen=True):
    """The part of a history that a preview needs; effects without their calls."""

    event: EventRow
    kept: bool
    attempts: tuple[AttemptRow, ...]
    effects: tuple[EffectHistory, ...]


class Health(Struct, frozen=True):
    """What `/readyz` reports."""

    writable: bool
    schema: int
    clock_skew: float
    """Seconds by which the database's clock is ahead of this host's."""
    problem: str | None = None
