"""The event that an operator makes so that a source's repair handler runs for one object."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from ..errors import ConfigError
from ..identities import identity, new_id
from ..model import REPAIR, Arrival, EventRow, Item, Proof
from ..states import KeyOrigin

PREFIX = "repair:"


def made(source: str, object_id: str, actor: str, reason: str, about: EventRow | None) -> Arrival:
    """Its key is of a kind that nothing from outside can have, so that it meets no provider's."""
    if not 0 < len(object_id) <= 255 or not object_id.isprintable():
        raise ConfigError("an object's id has 1 to 255 printable characters")
    event_id = new_id()
    content = {"object": object_id, "event": about and str(about.id), "type": about and about.type}
    body = msgspec.json.encode({**content, "actor": actor, "reason": reason})
    item = Item(
        key=f"{PREFIX}{event_id}",
        key_origin=KeyOrigin.ARRIVAL,
        identity=identity(source, b"repair", event_id.bytes),
        fingerprint=sha256(body).digest(),
        type=REPAIR,
        object_id=object_id,
    )
    proof = Proof("repair", "")
    return Arrival(event_id, source, b"", b"", body, None, proof, (item,), (event_id,), reconciled=True)
