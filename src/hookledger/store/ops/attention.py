"""What an operator must see: `store.attention`. Every count ends at a limit, and every query after some seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from ...errors import ConfigError
from ...ids import FIRST_ID, LAST_ID
from ...ledger import Effect
from ...states import EffectState, State
from ..rows import value_of
from ..session import Operations, Row, Session, scans
from .filters import EffectFilter
from .search import FEW

MOST = 1_000_000
"""Beyond it, a tally says `or more`."""
LOOKED_AT = 10_000
"""Marked events, at most, whose effects are searched for an alert."""
LAST = (LAST_ID, b"\xff" * 33)
"""After every effect."""
STREAMS = {
    EffectState.STARTED: "effects_started",
    EffectState.DONE: "effects_ended",
    EffectState.CANCELLED: "effects_ended",
}
"""How effects in a state are found; `effects_open` for the others."""


class Tally(Struct, frozen=True):
    """How many there are, and the oldest."""

    count: int = 0
    capped: bool = False
    """Whether there may be more: it was counted no further."""
    oldest: UUID | None = None
    """The event, or that of the effect."""
    since: datetime | None = None

    @property
    def words(self) -> str:
        return f"{self.count:,}{' or more' * self.capped}"


class Alert(Struct, frozen=True):
    """An event with an alert."""

    id: UUID
    source: str
    state: State
    alert: str


class Queued(Struct, frozen=True):
    """Events of a source that are not settled yet; the first three are counted no further than a limit."""

    source: str
    pending: int
    retrying: int
    processing: int
    overdue: float | None
    """Seconds since the first is due; negative: it will be. None: none has a time."""


class ListedEffect(Struct, frozen=True):
    """An effect, and since when it is in its state."""

    effect: Effect
    since: datetime
    """Unknown: when the first call was made that may have happened."""

    @property
    def cursor(self) -> str:
        """Where the page after this one begins."""
        return f"{self.effect.event_id}:{self.effect.identity.hex()}"


class EffectPage(Struct, frozen=True):
    """Effects, those of the newest event first."""

    effects: tuple[ListedEffect, ...]
    next: str | None
    """The next page begins before this one; None: this is the last."""


class Attention(Operations):
    """`store.attention`. Reads only; Unavailable for what takes longer than ten seconds."""

    @scans()
    async def events(self, db: Session, state: State) -> Tally:
        """How many events are retrying, skipped, failed, in review or discarded."""
        assert state in FEW, f"no index has the events that are {state}"
        return _tally(await db("event_tally", state=state, most=MOST, first=FIRST_ID, last=LAST_ID))

    @scans()
    async def by_source(self, db: Session, state: State, most: int) -> dict[str, int]:
        """The same by source, counted no further than `most` in all."""
        assert state in FEW, f"no index has the events that are {state}"
        return {row["source"]: row["n"] for row in await db("event_tally_by_source", state=state, most=most)}

    @scans()
    async def queue(self, db: Session, most: int) -> list[Queued]:
        """What is not settled, by source, counted no further than `most` for each: a long queue costs that much."""
        overdue = {row["source"]: row["overdue"] for row in await db("queue_due", most=most)}
        processing = {row["source"]: row["n"] for row in await db("processing_by_source", most=most)}
        found = []
        for source in sorted(overdue.keys() | processing.keys()):
            waiting = {row["state"]: row["n"] for row in await db("queue_of_source", source=source, most=most)}
            counts = (waiting.get("pending", 0), waiting.get("retrying", 0), processing.get(source, 0))
            found.append(Queued(source, *counts, overdue.get(source)))
        return found

    @scans()
    async def alerts(self, db: Session, limit: int) -> list[Alert]:
        """Events with an alert, the newest first."""
        return [value_of(Alert, row) for row in await db("event_alerts", limit=limit)]

    @scans()
    async def effect_alerts(self, db: Session, limit: int) -> list[Effect]:
        """Effects with an alert, those of the newest event first."""
        stream = db.piece("effects_alerted").replace("{looked_at}", str(LOOKED_AT))
        found = [value_of(Effect, row) for row in await _effects(db, stream, limit)]
        return sorted(found, key=_order, reverse=True)

    @scans()
    async def effects(
        self, db: Session, where: EffectFilter, *, before: str | None = None, limit: int = 50
    ) -> EffectPage:
        """Those for which the filter holds."""
        event_id, identity = LAST if before is None else _place(before)
        named = {"name": where.name, "source": where.source}
        also = [db.piece(f"effect_of_{piece}") for piece, value in named.items() if value is not None]
        found: list[ListedEffect] = []
        for state in where.states or EffectState:
            stream = db.piece(STREAMS.get(state, "effects_open"))
            given = {"state": state, "event_id": event_id, "identity": identity, **named}
            found += map(_listed, await _effects(db, stream, limit + 1, also, **given))
        found.sort(key=lambda one: _order(one.effect), reverse=True)
        page = tuple(found[:limit])
        return EffectPage(page, page[-1].cursor if len(found) > limit else None)

    @scans()
    async def tally(self, db: Session, state: EffectState, *, outbox: bool = False) -> int:
        """How many effects are planned, failed or unknown, counted no further than MOST. `outbox`: only there."""
        [row] = await db.run(_filled(db.piece("effect_tally"), MOST, _outbox(db, outbox)), {"state": state})
        n: int = row["n"]
        return n

    @scans()
    async def oldest(
        self, db: Session, state: EffectState, limit: int, *, outbox: bool = False
    ) -> list[ListedEffect]:
        """The first of them in the order of their events."""
        rows = await _effects(db, db.piece("effects_oldest"), limit, _outbox(db, outbox), state=state)
        return sorted(map(_listed, rows), key=lambda one: _order(one.effect))

    @scans()
    async def overdue(self, db: Session, late: float) -> Tally:
        """Outbox entries that are due for longer than so many seconds."""
        return _tally(await db.run(_filled(db.piece("effects_overdue"), MOST), {"late": late}))


def _outbox(db: Session, only: bool) -> Sequence[str]:
    return [db.piece("effect_of_outbox")] if only else []


def _filled(text: str, most: int, also: Sequence[str] = ()) -> str:
    return text.replace("{most}", str(most)).replace("{also}", "".join(f" {condition}" for condition in also))


async def _effects(db: Session, stream: str, most: int, also: Sequence[str] = (), **given: Any) -> list[Row]:
    """No more than so many effects of a stream for which these conditions hold, too."""
    sql = db.piece("listed_effects").replace("{effects}", _filled(stream, most, also))
    return await db.run(sql, {"first": FIRST_ID, "last": LAST_ID, "nothing": b"", **given})


def _tally(found: Sequence[Row]) -> Tally:
    if not found or not found[0]["n"]:
        return Tally()
    [row] = found
    return Tally(row["n"], row["n"] >= MOST, row["oldest_id"], row["since"])


def _listed(row: Row) -> ListedEffect:
    effect = value_of(Effect, row)
    since: datetime | None
    match effect.state:
        case EffectState.PLANNED:
            since = row["planned_at"]
        case EffectState.UNKNOWN if effect.unknown_for is not None:
            since = row["now_at"] - timedelta(seconds=effect.unknown_for)
        case EffectState.DONE | EffectState.CANCELLED:
            since = effect.finished_at
        case _:
            since = row["ended_at"] or row["called_at"]
    return ListedEffect(effect, since or effect.created_at)


def _order(effect: Effect) -> tuple[UUID, bytes]:
    return effect.event_id, effect.identity


def _place(cursor: str) -> tuple[UUID, bytes]:
    event, _, identity = cursor.partition(":")
    try:
        return UUID(event), bytes.fromhex(identity)
    except ValueError:
        raise ConfigError("`before` names no effect: copy it from the end of the page before this one") from None
