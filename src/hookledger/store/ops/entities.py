"""Order: which event of an entity is first, and which events that wait for an entity wake (decision 0051)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from ...model import Kind
from ..history import EventRow, OtherEvent, Turn
from ..rows import value_of
from ..session import Operations, Row, Session, scans, writes_lightly

BATCH = 500
"""Changes that one call takes."""

ROUNDS = 20
KEEP = 86400.0
"""Seconds for which it is remembered when an event of an entity was settled: longer than any attempt."""

Name = tuple[str, str]
"""Source and entity."""
START: Name = ("", "")
"""Before every entity."""


class Held(Struct, frozen=True):
    """Events of one kind that are held."""

    kind: Kind
    count: int
    since: datetime
    """When the oldest was received."""


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

    async def place_all(self) -> None:
        """Do so for all that have changed; at most for ROUNDS batches, so that a claim can follow."""
        for _ in range(ROUNDS):
            if not await self.place():
                break

    @writes_lightly
    async def forget(self, db: Session, after: Name = START, *, unsettled_for: float = KEEP) -> Name | None:
        """Delete entities without events that wait, of the next thousand; returns the last of these, None at the
        end."""
        window = await db("entity_window", source=after[0], entity=after[1], most=2 * BATCH)
        if not window:
            return None
        last = window[-1]["source"], window[-1]["entity"]
        bounds = {"source": after[0], "entity": after[1], "last_source": last[0], "last_entity": last[1]}
        await db("forget_entities", **bounds, unsettled_for=unsettled_for)
        return last

    @scans()
    async def held(self, db: Session) -> list[Held]:
        """Events that are held behind a failed one or one in review, by kind, most first."""
        return [Held(Kind(r["source"], r["type"]), r["n"], r["since"]) for r in await db("held_events")]


async def turn_of(db: Session, event: EventRow) -> Turn | None:
    """Why an event does not have its turn; None if it has, or needs none."""
    if event.ready_at is None or event.waits_for is not None:
        return None
    where = {"source": event.source, "entity": event.entity}
    first = await db("first_of_entity", **where)
    held_by = await db("holding", **where, order_at=event.order_at, id=event.id)
    return Turn(*(value_of(OtherEvent, rows[0]) if rows else None for rows in (first, held_by)))


def _latest(changes: Iterable[Row], polled: Iterable[Row]) -> dict[Name, datetime | None]:
    """Each entity, and when an event of it was settled last."""
    found: dict[Name, datetime | None] = {(row["source"], row["entity"]): None for row in polled}
    for row in changes:
        name, settled = (row["source"], row["entity"]), row["settled_at"]
        known = found.get(name)
        found[name] = settled if known is None or (settled is not None and settled > known) else known
    return found
