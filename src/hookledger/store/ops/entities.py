"""Order: which event of an entity is first, and which events that wait for an entity wake (decision 0051)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ..session import Operations, Row, Session, writes_lightly

BATCH = 500
"""Changes that one call takes."""

Name = tuple[str, str]
"""Source and entity."""


class Entities(Operations):
    """`store.entities`."""

    @writes_lightly
    async def place(self, db: Session) -> bool:
        """Let the first event of each entity that has changed be claimed; returns whether there may be more to do.

        At most one event of an entity is first: the earliest that neither waits for an entity nor is held. It keeps
        its place while it is processing. What a crash undoes is done again: the changes are deleted in the same
        transaction.
        """
        changes = await db("take_changes", most=BATCH)
        polled = await db("poll_waiting", most=BATCH)
        changed = _latest(changes, polled)
        if not changed:
            return False
        entities = [(*name, settled) for name, settled in sorted(changed.items())]
        await db("lock_entities", entities=entities)
        woken = [row for row in await db("wake", entities=entities) if row["order_at"] is not None]
        if woken:
            given = [(row["id"], row["claim"], row["source"], row["entity"]) for row in woken]
            await db("add_woken", woken=given)
        await db("demote", entities=entities)
        await db("promote", entities=entities)
        return bool(woken) or len(changes) == BATCH or len(polled) == BATCH


def _latest(changes: Iterable[Row], polled: Iterable[Row]) -> dict[Name, datetime | None]:
    """Each entity, and when an event of it was settled last."""
    found: dict[Name, datetime | None] = {(row["source"], row["entity"]): None for row in polled}
    for row in changes:
        name, settled = (row["source"], row["entity"]), row["settled_at"]
        known = found.get(name)
        found[name] = settled if known is None or (settled is not None and settled > known) else known
    return found
