"""The values of the effect ledger: what a handler asks for, what is known of it, and the calls made for it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from .states import CallOutcome, EffectKind, EffectState, Repeat

UNKNOWN_ARGUMENTS = "waits for a worker that knows its arguments"
"""How the reason of an outbox entry begins that was planned for another version of its function. Queries match it."""


class Intent(Struct, frozen=True):
    """An effect that a handler asks for."""

    identity: bytes
    kind: EffectKind
    source: str
    """Of the event that asks."""
    name: str
    key: str
    event_id: UUID
    claim: int
    """Of the attempt that asks."""
    arguments: bytes = b"{}"
    """JSON."""
    arguments_digest: bytes = b""
    """Of those that identify the effect."""
    repeat: Repeat | None = None
    """None for `once`, which cannot be in doubt."""
    downstream: str = ""
    """The circuit that it is called through."""
    lane: str | None = None
    """The entity whose effects of this name are done in order."""
    lease: float = 0.0
    """How long a call may take until nobody believes in it any more."""


class Known(Struct, frozen=True):
    """What a handler that plans an effect must know of one that was there before it."""

    kind: EffectKind
    state: EffectState
    arguments_digest: bytes


class Effect(Struct, frozen=True):
    """One effect as the ledger has it."""

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
    """One more for each repetition that an operator asked for."""
    fence: int
    """One more for each worker that took it; every change names it."""
    number: int
    """Of its newest call; 0 before the first."""
    tries: int
    """Since it was planned."""
    due_at: datetime | None
    leased_until: datetime | None
    worker: str | None
    created_at: datetime
    finished_at: datetime | None
    result: bytes | None
    """JSON."""
    error: str | None
    alert: str | None
    """What contradicts what was decided about it."""
    decided: str | None
    """`happened` or `did_not_happen`, by its check or by a person."""
    called_done: bool
    """Whether a call of this generation came back done."""
    expired: bool
    """Whether it is started and its lease has run out."""
    lease_left: float
    """Seconds; 0 without a lease."""
    doubtful_for: float | None
    """Seconds since its first call that may have been sent; None when there is no such call."""
    age: float
    """Seconds since it was made or planned anew."""

    @property
    def superseded(self) -> bool:
        """A `once` that made way for its own repetition: evidence, and in nobody's way. Nothing else changes one."""
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
    """When the outbox is to go on by itself; None: it is not."""
    unless_told: bool = False
    """Only if nothing was told of the call yet, not even that nobody knows."""


class Concluded(Struct, frozen=True):
    """Where the effect stands after a completion."""

    state: EffectState
    alert: str | None = None


class EffectHistory(Struct, frozen=True):
    """An effect with its calls."""

    effect: Effect
    calls: tuple[Call, ...]
