"""What did not plainly become an event: requests that were refused, odd deliveries, keys known from elsewhere."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from .states import DeliveryOutcome, KeyOrigin, State


class Refusal(Struct, frozen=True):
    """A request that was refused, as it goes into the sample."""

    id: UUID
    source: str
    reason: str
    """A code from a closed set, such as `signature_mismatch`."""
    method: str
    path: str
    query: bytes
    headers: bytes
    """As on the wire, less the secrets that the contract names."""
    body: bytes
    remote: str | None


class RefusalRow(Struct, frozen=True):
    """A refused request of the sample, as it was kept."""

    id: UUID
    source: str
    reason: str
    received_at: datetime
    method: str
    path: str
    query: bytes
    headers: bytes
    body: bytes
    remote: str | None


class RefusalCount(Struct, frozen=True):
    """How often one source refused for one reason; the sample holds only some of them."""

    source: str
    """"" for requests that belong to no source."""
    reason: str
    count: int
    first_at: datetime
    last_at: datetime
    kept: int
    """How many of them are in the sample."""


class OddDelivery(Struct, frozen=True):
    """A delivery that is evidence for something: a conflict, or a known body under another id."""

    request_id: UUID
    item: int
    source: str
    outcome: DeliveryOutcome
    event_id: UUID
    """The event that it met."""
    event_key: str | None
    """None where that event is known by its key alone: imported, or pruned."""
    event_state: State | None
    """At that moment."""
    delivery_id: str | None
    received_at: datetime
    admitted_as: UUID | None
    """The event that an operator made of it."""


class Imported(Struct, frozen=True):
    """What became of keys that were handed over."""

    given: int
    """Different ones."""
    new: int
    """Taken now; a delivery with one of them is a duplicate from here on."""
    known: int
    """Of these, here before."""


class KeyGroup(Struct, frozen=True):
    """Something that several events or deliveries have in common."""

    what: str
    """A key, or a fingerprint in hex."""
    type: str
    count: int
    sample: tuple[UUID, ...]
    """At most three of the events."""


class KeyAudit(Struct, frozen=True):
    """What the last events of a source say about its keys."""

    source: str
    events: int
    """How many were looked at."""
    deliveries: int
    """Theirs, duplicates included."""
    origins: dict[KeyOrigin, int]
    duplicates: int
    conflicts: int
    """Deliveries with a known key and other content."""
    same_bodies: int
    """Deliveries with known content under another, unsigned id."""
    same_content: int
    """Events that share their type and content with another event: the key may be too narrow."""
    same_content_groups: tuple[KeyGroup, ...]
    conflict_groups: tuple[KeyGroup, ...]
    same_body_groups: tuple[KeyGroup, ...]
