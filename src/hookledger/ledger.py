"""The values of the effect ledger: requested effects, recorded effects and their calls."""

from __future__ import annotations

from datetime import datetime
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
