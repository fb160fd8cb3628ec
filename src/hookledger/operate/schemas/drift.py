"""Notes which fields the events of each source have, so that a new one is seen: names and JSON types, no values."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from msgspec import Struct

from ...errors import HookledgerError
from ...ids import first_id
from ...schemas.shape import fields
from ...store.ops.schema_fields import SchemaField
from ..context import Context
from .stored import contents

log: logging.Logger = logging.getLogger(__name__)

EVERY = 60.0
SAMPLE = 200
"""Events of a source at one look, the newest: a busy source is not read whole."""
BEHIND = 10.0
"""Seconds: a younger event may be committed after one that is younger still."""
PAUSE = 0.005
"""Seconds between two events, so that handlers run between them."""


class NotedField(Struct, frozen=True):
    """A field of a source's events with one JSON type."""

    type: str
    field: str
    """A JSON pointer; `*` for the items of arrays, and for names that look like values."""
    kind: str
    """The JSON type."""
    first_at: datetime
    event_id: str
    new: str
    """`type`: the event type is new, `field`: the field is, `kind`: the field had another JSON type before."""


class Drift(Struct, frozen=True):
    """Fields of a source's events, those that were first seen last first."""

    source: str
    fields: list[NotedField]
    looked_at: datetime | None
    """When events were last looked at; None: never."""
    full_at: datetime | None
    """When there was no room for a field, first."""


async def look(context: Context, source: str) -> int:
    """Note the fields of a source's newest events since the last look; returns how many are new."""
    known = await context.store.schema_fields.look(source)
    seen: dict[tuple[str, str, str], SchemaField] = {}
    youngest = None
    newest = first_id((await context.store.rates.now()).timestamp() - BEHIND)
    async for stored in contents(context, source, None, last=SAMPLE, before=newest):
        if known is not None and stored.event.id <= known.last_id:
            break
        youngest = youngest or stored.event.id
        if stored.raw is None:
            continue
        event = stored.event
        for place, kind in fields(stored.content):  # the oldest event comes last, and stays
            seen[event.type, place, kind] = SchemaField(event.type, place, kind, event.received_at, event.id)
        await asyncio.sleep(PAUSE)
    if youngest is None:
        return 0
    ordered = sorted(seen.values(), key=lambda one: (one.event_id, one.field, one.kind))
    return await context.store.schema_fields.note(source, youngest, ordered)


async def drift(context: Context, source: str, *, since: datetime | None = None) -> Drift:
    """Return the fields that were first seen since then; all of them without a time."""
    found = await context.store.schema_fields.fields(source)
    known = await context.store.schema_fields.look(source)
    types: dict[str, datetime] = {}
    places: dict[tuple[str, str], datetime] = {}
    for one in reversed(found):  # the oldest first
        types.setdefault(one.type, one.first_at)
        places.setdefault((one.type, one.field), one.first_at)

    def noted(one: SchemaField) -> NotedField:
        new = "kind"
        if one.first_at <= places[one.type, one.field]:
            new = "type" if one.first_at <= types[one.type] else "field"
        return NotedField(one.type, one.field, one.kind, one.first_at, str(one.event_id), new)

    return Drift(
        source,
        [noted(one) for one in found if since is None or one.first_at >= since],
        known.looked_at if known else None,
        known.full_at if known else None,
    )


class FieldWatch:
    """Looks at the events of all configured sources, once a minute. Several workers may do so."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            if self._context.notes_fields:
                await self.round()

    async def round(self) -> None:
        """Look at each source once; a failure at one does not stop the others."""
        for source in self._context.sources.names:
            try:
                await look(self._context, source)
            except HookledgerError as error:
                log.debug("fields of %s are not noted yet: %s", source, error)
            except Exception:
                log.exception("fields of %s are not noted: internal error", source)
