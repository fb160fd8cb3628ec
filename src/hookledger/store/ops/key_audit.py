"""What the events of a source say about its keys: too narrow, or too wide."""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

from msgspec import Struct

from ...states import DeliveryOutcome, KeyOrigin
from ..session import Operations, Row, Session, scans


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


class KeyAudits(Operations):
    """`store.key_audits`."""

    @scans(60.0)
    async def audit_keys(self, db: Session, source: str, *, last: int) -> KeyAudit:
        """What the last so many events of a source, and all deliveries of those, say about its keys."""
        looked = {"source": source, "last": max(last, 0)}
        origins = {KeyOrigin(row["key_origin"]): row["n"] for row in await db("audit_origins", **looked)}
        again = {DeliveryOutcome(row["outcome"]): row["n"] for row in await db("audit_redelivered", **looked)}
        contents = await db("audit_contents", **looked)
        conflicts = await db("audit_quarantined", outcome=DeliveryOutcome.CONFLICT, **looked)
        bodies = await db("audit_quarantined", outcome=DeliveryOutcome.SAME_BODY, **looked)
        events = sum(origins.values())
        return KeyAudit(
            source,
            events,
            # An event accepted from quarantine came with a delivery of the event that it met.
            events - origins.get(KeyOrigin.QUARANTINE, 0) + sum(again.values()),
            origins,
            again.get(DeliveryOutcome.DUPLICATE, 0),
            again.get(DeliveryOutcome.CONFLICT, 0),
            again.get(DeliveryOutcome.SAME_BODY, 0),
            contents[0]["total"] if contents else 0,
            _sharing(contents),
            tuple(KeyGroup(row["key"], row["type"], row["n"], (row["id"],)) for row in conflicts),
            tuple(KeyGroup(row["fingerprint"].hex(), row["type"], row["n"], (row["id"],)) for row in bodies),
        )


def _sharing(rows: list[Row]) -> tuple[KeyGroup, ...]:
    """Events that share type and content: each group has up to three rows, one after the other."""
    return tuple(
        KeyGroup(fingerprint.hex(), event_type, number, tuple(row["id"] for row in group))
        for (fingerprint, event_type, number), group in groupby(
            rows, key=lambda row: (row["fingerprint"], row["type"], row["n"])
        )
    )
