"""Guards: the newest version applied to each projection of an entity, and what attempts were answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct

from ...ledger import Guard, GuardAnswer, GuardHistory, without_other_key
from ..rows import value_of
from ..session import Operations, Row, Session, searches

MOST = 10_000
"""Guards with ties that are counted; beyond it there are `or more`."""


class Ties(Struct, frozen=True):
    """Guards at which two events had the same version."""

    count: int
    """At most MOST."""
    latest: tuple[Guard, ...]
    """Some of them, the latest first."""


class Guards(Operations):
    """`store.guards`. A handler's transaction asks and sets them."""

    @searches
    async def ties(self, db: Session, most: int) -> Ties:
        """Return how many guards had ties, and so many of them."""
        rows = await db("guards_with_ties", most=most)
        [count] = await db("count_ties", most=MOST)
        return Ties(count["n"], tuple(value_of(Guard, row) for row in rows))


async def erase_guards(db: Session, events: list[UUID], digest: Callable[[str], str]) -> None:
    """Replace the keys that are shown: of the guards that these events set, of their answers, and of the events where
    others were stale for them. Versions stay: they are numbers and times, and later events are compared with them."""
    for row in await db("lock_guards_to_erase", events=events):
        keys = {name: digest(row[name]) for name in ("key", "event_key")}
        await db("erase_guard", identity=row["identity"], **keys)
    for row in await db("answers_to_erase", events=events):
        where = {name: row[name] for name in ("event_id", "claim", "identity")}
        await db("erase_answer", **where, key=digest(row["key"]))
    for row in await db("stale_for_events", events=events):
        where = {"event_id": row["event_id"], "claim": row["claim"]}
        await db("erase_other_key_in_attempt", **where, error=without_other_key(row["traceback"]))
        if row["last_claim"] == row["claim"]:
            said = {name: without_other_key(row[name]) for name in ("reason", "cause", "error")}
            await db("erase_other_key", id=row["event_id"], **said)


async def answers_of(db: Session, events: Sequence[UUID]) -> list[GuardHistory]:
    """What the attempts of some events were answered, with the guards as they are now."""
    rows = await db("answers_of_events", events=list(events))
    if not rows:
        return []
    found = await db("guards", identities=sorted({row["identity"] for row in rows}))
    guards = {row["identity"]: value_of(Guard, row) for row in found}
    return [GuardHistory(_answer(row, guards.get(row["identity"])), guards.get(row["identity"])) for row in rows]


def _answer(row: Row, guard: Guard | None) -> GuardAnswer:
    """The other event may be pruned: then the guard knows its key, if that event set it last."""
    key = row["other_key"]
    if key is None and guard is not None and guard.event_id == row["other_event_id"]:
        key = guard.event_key
    return value_of(GuardAnswer, row, other_key=key)
