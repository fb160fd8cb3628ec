"""Which fields the events of each source have, and when each was first seen: names and JSON types, no values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ...ids import digest_of_field
from ..rows import value_of
from ..session import Operations, Session, reads, writes_lightly

MOST = 2_000
"""Fields of one source,"""
MOST_OF_TYPE = 500
"""and of one event type. A sender may name its fields as it likes."""


class SchemaField(Struct, frozen=True):
    """A field of a source's events with one JSON type, and its first sight."""

    type: str
    """The events' type."""
    field: str
    """A JSON pointer; `*` for the items of arrays, and for names that look like values."""
    kind: str
    """The JSON type."""
    first_at: datetime
    """When the first event that was looked at and has it was received."""
    event_id: UUID
    """That event, which may be pruned since."""


class SchemaLook(Struct, frozen=True):
    """How far a source's events were looked at."""

    last_id: UUID
    """The last event."""
    looked_at: datetime
    full_at: datetime | None
    """When there was no room for a field, first; None: there always was."""


class SchemaFields(Operations):
    """`store.schema_fields`."""

    @reads
    async def look(self, db: Session, source: str) -> SchemaLook | None:
        found = await db("schema_look", source=source)
        return value_of(SchemaLook, found[0]) if found else None

    @writes_lightly
    async def note(self, db: Session, source: str, last_id: UUID, seen: Sequence[SchemaField]) -> int:
        """Add fields of events up to this one, as far as there is room; returns how many are new. Does nothing if
        another process has looked as far."""
        if not await db("advance_schema_look", source=source, last_id=last_id):
            return 0
        known, of_type = set[bytes](), Counter[str]()
        for row in await db("known_schema_fields", source=source):
            known.add(row["identity"])
            of_type[row["type"]] += 1
        added: dict[bytes, SchemaField] = {}
        full = False
        for one in seen:
            identity = digest_of_field(source, one.type, one.field, one.kind)
            if identity in known or identity in added:
                continue
            if len(known) + len(added) >= MOST or of_type[one.type] >= MOST_OF_TYPE:
                full = True
                continue
            added[identity] = one
            of_type[one.type] += 1
        if added:
            rows = [
                (identity, one.type, one.field, one.kind, one.first_at, one.event_id)
                for identity, one in sorted(added.items())
            ]
            await db("add_schema_fields", source=source, given=rows)
        if full:
            await db("schema_fields_full", source=source)
        return len(added)

    @reads
    async def fields(self, db: Session, source: str) -> list[SchemaField]:
        """All of a source, the newest first."""
        return [value_of(SchemaField, row) for row in await db("schema_fields_of", source=source)]
