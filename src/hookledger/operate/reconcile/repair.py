"""Repair: have a worker run a source's repair handler for one object, through an event made for it."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from ...errors import ConfigError, WrongState
from ...ids import identity, new_id
from ...model import REPAIR, REPAIR_KEY, Arrival, Item, Proof, base_source
from ...states import KeyOrigin
from ...store.history import EventRow, History
from ...store.ops.audit import Audit
from .. import search
from ..context import Context


async def repair(context: Context, by: Audit, source: str, object_id: str, about: EventRow | None = None) -> History:
    """Have a worker run the source's repair handler for one object: a new event, linked to the event it is `about`.
    WrongState while an earlier repair of the object is pending."""
    plan = context.sources.source(source).plan()
    if not plan.repairs:
        raise ConfigError(f"source {source!r} has no repair handler: declare one with @source.repair")
    if not plan.runs:
        raise WrongState(f"source {source!r} observes: its handlers do not run; set mode to run")
    arrival = repair_arrival(source, object_id, by, about)
    ident = await context.store.reconciling.repair(arrival, None if about is None else about.id, *by)
    return await search.find(context, str(ident))


async def repair_event(context: Context, by: Audit, event: EventRow) -> History:
    """Have a worker run the repair handler for the object of an event."""
    if event.object_id is None:
        raise WrongState(f"event {event.id} names no object: give the object's id")
    return await repair(context, by, base_source(event.source), event.object_id, event)


def repair_arrival(source: str, object_id: str, by: Audit, about: EventRow | None) -> Arrival:
    """Return the arrival of a repair event; its key has a prefix that no provider's key has."""
    if not 0 < len(object_id) <= 255 or not object_id.isprintable():
        raise ConfigError("an object's id has 1 to 255 printable characters")
    event_id = new_id()
    content = {"object": object_id, "event": about and str(about.id), "type": about and about.type}
    body = msgspec.json.encode({**content, "actor": by.actor, "reason": by.reason})
    item = Item(
        key=f"{REPAIR_KEY}{event_id}",
        key_origin=KeyOrigin.ARRIVAL,
        identity=identity(source, b"repair", event_id.bytes),
        fingerprint=sha256(body).digest(),
        type=REPAIR,
        object_id=object_id,
    )
    proof = Proof("repair", "")
    return Arrival(event_id, source, b"", b"", body, None, proof, (item,), (event_id,), reconciled=True)
