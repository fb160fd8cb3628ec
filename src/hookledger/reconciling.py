"""The values of reconciliation: what a provider's log said, beside what is here."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from .states import DeliveryOutcome, State

NEW = (DeliveryOutcome.RECONCILED, DeliveryOutcome.INVALID)
"""What an arrival from a provider's log is where it was missing."""


WITHHELD = (DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY)
"""What it is where an operator has to decide whether it is an event."""


class Known(Struct, frozen=True):
    """Who owns an identity."""

    event_id: UUID
    state: State | None
    """None where the event is known by its key alone: imported, or pruned."""


class Begun(Struct, frozen=True):
    """A comparison that is ours to make; every later write names the fence."""

    id: UUID
    source: str
    fence: int
    """1 for the first who tries, one more for each after it."""
    since: datetime
    until: datetime


class Counts(Struct, frozen=True, kw_only=True):
    """What a comparison found."""

    listed: int = 0
    """Events, or changed objects, that the provider named."""
    matched: int = 0
    """Known here, and not in the dead letter."""
    missing: int = 0
    """Not known here."""
    taken_in: int = 0
    """Of these, recorded now."""
    repairs: int = 0
    """Of these, objects whose repair was asked for."""
    resent: int = 0
    """Of these, deliveries that the provider was asked to make again."""
    failed: int = 0
    """Known here, in the dead letter or waiting for a person."""
    unknown: int = 0
    """Here, and not in the provider's log of that time."""
    refused: int = 0
    """Listed, and not to be taken in: no key, say."""
    ignored: int = 0
    """Of types that the source does not take."""

    @property
    def clean(self) -> bool:
        """Whether both sides say the same, and all went well."""
        return not (self.missing or self.failed or self.unknown or self.refused)

    def words(self) -> str:
        """For people and for the audit."""
        names = ("taken_in", "repairs", "resent", "failed", "unknown", "refused", "ignored")
        more = [f"{getattr(self, name):,} {name.replace('_', ' ')}" for name in names if getattr(self, name)]
        return ", ".join([f"{self.listed:,} listed", f"{self.missing:,} missing", *more])


class Reconciliation(Struct, frozen=True):
    """One comparison, as it was recorded."""

    id: UUID
    source: str
    slot: datetime | None
    """The moment that it was planned for; None where a person asked."""
    since: datetime
    until: datetime
    actor: str
    reason: str
    fence: int
    started_at: datetime
    leased_until: datetime | None
    """Until then whoever began it is believed to be at it, or it waits to be tried again."""
    finished_at: datetime | None
    """None while it runs, waits to be tried again, or nobody lived to end it."""
    problem: str | None
    counts: Counts | None
