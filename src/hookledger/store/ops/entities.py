"""Order: which event of an entity is first, and which events that wait for an entity wake (decision 0051)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import astuple

from ...ids import new_id
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
Changed = tuple[str, str, datetime | None]
"""Source and entity, and when an event of it was settled last."""
START: Name = ("", "")
"""Before every entity."""


class Held(Struct, frozen=True):
    """Events of one kind that are held."""

    kind: Kind
    count: int
    since: datetime
    """When the oldest was received."""


class Blocking(Struct, frozen=True):
    """Entities in which an event of one kind has the turn, and others wait behind it."""

    kind: Kind
    entities: int
    retrying: int
    """How many of these events are retrying: they are never skipped as unhandled."""
    since: datetime
    """When the oldest of them was received."""


class Entities(Operations):
    """`store.entities`."""

    @writes_lightly
    async def place(self, db: Session, *, around_locks: bool = False) -> bool:
        """Let the first event of each entity that has changed be claimed; returns whether there may be more to do.

        At most one event of an entity is first: the earliest that neither waits for an entity nor is held. It keeps
        its place while it is processing. What a crash undoes is done again: the changes are deleted in the same
        transaction.

        Another session may have locked an event that has to change. This waits for it, and then raises Unavailable,
        with nothing decided. `around_locks`: leave its entity for later instead, which takes one more statement.
        """
        changes = await db("take_changes", most=BATCH)
        polled = await db("poll_waiting", most=BATCH)
        changed = _latest(changes, polled)
        if not changed:
            return False
        entities = [(*name, settled) for name, settled in sorted(changed.items())]
        await db("lock_entities", entities=entities)
        if around_locks:
            entities = await _free(db, entities)
        woken = [row for row in await db("wake", entities=entities) if row["order_at"] is not None]
        if woken:
            given = [(row["id"], row["claim"], row["source"], row["entity"]) for row in woken]
            await db("add_woken", woken=given)
        await db("demote", entities=entities)
        await db("promote", entities=entities)
        return bool(woken) or len(changes) == BATCH or len(polled) == BATCH

    async def place_all(self, *, around_locks: bool = False) -> None:
        """Do so for all that have changed; at most for ROUNDS batches, so that a claim can follow."""
        for _ in range(ROUNDS):
            if not await self.place(around_locks=around_locks):
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

    @scans()
    async def blocked_by(self, db: Session, kinds: Sequence[Kind]) -> list[Blocking]:
        """Entities whose turn events of these kinds have while others wait behind them, most first."""
        found = await db("blocked_by", kinds=[astuple(kind) for kind in kinds])
        return [Blocking(value_of(Kind, r), r["n"], r["retrying"], r["since"]) for r in found]


async def turn_of(db: Session, event: EventRow) -> Turn | None:
    """Why an event does not have its turn; None if it has, or needs none."""
    if event.ready_at is None or event.waits_for is not None:
        return None
    first = await db("first_of_entity", source=event.source, entity=event.entity)
    return Turn(value_of(OtherEvent, first[0]) if first else None, await holder_of(db, event))


async def holder_of(db: Session, event: EventRow) -> OtherEvent | None:
    """The earlier event of its entity behind which an ordered event is held, or would be if it were due."""
    if event.order_at is None or event.entity is None:
        return None
    where = {"source": event.source, "entity": event.entity, "order_at": event.order_at, "id": event.id}
    return next((value_of(OtherEvent, row) for row in await db("holding", **where)), None)


async def _free(db: Session, entities: list[Changed]) -> list[Changed]:
    """Those of which no other session has locked an event. The others have a new change, which is the last to be
    taken: however many they are, they keep none from its turn."""
    locked = {(row["source"], row["entity"]) for row in await db("locked_entities", entities=entities)}
    if locked:
        await db("keep_changes", kept=[(new_id(), *name) for name in sorted(locked)])
    return [one for one in entities if one[:2] not in locked]


def _latest(changes: Iterable[Row], polled: Iterable[Row]) -> dict[Name, datetime | None]:
    """Each entity, and when an event of it was settled last."""
    found: dict[Name, datetime | None] = {(row["source"], row["entity"]): None for row in polled}
    for row in changes:
        name, settled = (row["source"], row["entity"]), row["settled_at"]
        known = found.get(name)
        found[name] = settled if known is None or (settled is not None and settled > known) else known
    return found
