"""What an operator must see: `store.trouble`. Every count ends at a limit, and every query after some seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct

from ..errors import ConfigError
from ..filters import EffectFilter
from ..ledger import Effect
from ..states import EffectState, State
from .rows import Row, Rows
from .search import FEW, LAST_ID, Dialect

MOST = 1_000_000
"""Beyond it, a tally says `or more`."""
SECONDS = 10.0
LOOKED_AT = 10_000
"""Marked events, at most, whose effects are searched for an alert."""
LAST = (LAST_ID, b"\xff" * 33)
"""After every effect."""
STREAMS = {
    EffectState.STARTED: "started",
    EffectState.DONE: "over",
    EffectState.CANCELLED: "over",
}
"""How effects in a state are found; `open` for the others."""


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
    state: State
    alert: str


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
    """Go on before this one; None: there are no more."""


class Trouble(Protocol):
    """`store.trouble`. Reads only; Unavailable for what takes longer than ten seconds."""

    async def events(self, state: State) -> Tally:
        """How many events are retrying, skipped, failed, in review or discarded."""
        ...

    async def alerts(self, limit: int) -> list[Alert]:
        """Events with an alert, the newest first."""
        ...

    async def effect_alerts(self, limit: int) -> list[Effect]:
        """Effects with an alert, those of the newest event first."""
        ...

    async def effects(self, where: EffectFilter, *, before: str | None = None, limit: int = 50) -> EffectPage:
        """Those for which the filter holds."""
        ...

    async def tally(self, state: EffectState, *, outbox: bool = False) -> int:
        """How many effects are planned, failed or unknown, counted no further than MOST. `outbox`: only there."""
        ...

    async def oldest(self, state: EffectState, limit: int, *, outbox: bool = False) -> list[ListedEffect]:
        """The first of them in the order of their events."""
        ...

    async def overdue(self, late: float) -> Tally:
        """Outbox entries that are due for longer than so many seconds."""
        ...


class Looking:
    """`Trouble` in any dialect. `parameter`, `ident`: as `Searching` takes them; `late`: how it takes seconds."""

    def __init__(self, dialect: Dialect, parameter: str, rows: Rows, *, ident: Any, late: Any) -> None:
        self._dialect = dialect
        self._parameter = parameter
        self._rows = rows
        self._ident = ident
        self._late = late

    async def events(self, state: State) -> Tally:
        assert state in FEW, "only these have an index"
        [found] = await self._fetch("event_tally", (state.value, MOST)) or [None]
        return self._tally(found)

    async def alerts(self, limit: int) -> list[Alert]:
        found = await self._fetch("event_alerts", (limit,))
        return [Alert(self._rows.ident(row["id"]), State(row["state"]), row["alert"]) for row in found]

    async def effect_alerts(self, limit: int) -> list[Effect]:
        pieces = {"most": str(limit), "looked_at": str(LOOKED_AT)}
        found = [self._rows.effect(row) for row in await self._effects("effect_alerts", pieces, ())]
        return sorted(found, key=_order, reverse=True)

    async def effects(self, where: EffectFilter, *, before: str | None = None, limit: int = 50) -> EffectPage:
        start = LAST if before is None else _place(before)
        found: list[ListedEffect] = []
        for state in where.states or EffectState:
            found += await self._in_state(state, where, start, limit + 1)
        found.sort(key=lambda one: _order(one.effect), reverse=True)
        page = tuple(found[:limit])
        return EffectPage(page, page[-1].cursor if len(found) > limit else None)

    async def _in_state(
        self, state: EffectState, where: EffectFilter, start: tuple[UUID, bytes], most: int
    ) -> list[ListedEffect]:
        values: list[Any] = [self._ident(start[0]), start[1], state.value]
        texts = []
        for piece, value in (("of_name", where.name), ("of_source", where.source)):
            if value is not None:
                values.append(value)
                place = len(self._dialect.now()) + len(values)
                texts.append(" " + self._dialect.sql(piece).replace("{0}", f"{self._parameter}{place}"))
        pieces = {"most": str(most), "also": "".join(texts)}
        rows = await self._effects(STREAMS.get(state, "open"), pieces, values)
        return [self._listed(row) for row in rows]

    async def tally(self, state: EffectState, *, outbox: bool = False) -> int:
        [row] = await self._fetch("effect_tally", (state.value,), {"most": str(MOST), **self._also(outbox)})
        n: int = row["n"]
        return n

    async def oldest(self, state: EffectState, limit: int, *, outbox: bool = False) -> list[ListedEffect]:
        pieces = {"most": str(limit), **self._also(outbox)}
        found = [self._listed(row) for row in await self._effects("oldest", pieces, (state.value,))]
        return sorted(found, key=lambda one: _order(one.effect))

    async def overdue(self, late: float) -> Tally:
        values = (*self._dialect.now(), self._late(late))
        [found] = await self._fetch("overdue", values, {"most": str(MOST)}) or [None]
        return self._tally(found)

    def _also(self, outbox: bool) -> dict[str, str]:
        return {"also": " " + self._dialect.sql("of_outbox") if outbox else ""}

    async def _effects(self, stream: str, pieces: Mapping[str, str], values: Sequence[Any]) -> list[Any]:
        pieces = {"0": self._dialect.sql(stream), **pieces}
        return await self._fetch("effect", (*self._dialect.now(), *values), pieces)

    async def _fetch(self, name: str, values: Sequence[Any], pieces: Mapping[str, str] | None = None) -> list[Any]:
        sql = self._dialect.sql(name)
        for piece, text in (pieces or {}).items():
            sql = sql.replace(f"{{{piece}}}", text)
        return await self._dialect.fetch(sql, values, SECONDS)

    def _tally(self, row: Row | None) -> Tally:
        if row is None or not row["n"]:
            return Tally()
        return Tally(row["n"], row["n"] >= MOST, self._rows.ident(row["oldest"]), self._rows.time(row["since"]))

    def _listed(self, row: Row) -> ListedEffect:
        effect = self._rows.effect(row)
        called, told = self._rows.when(row["called_at"]), self._rows.when(row["told_at"])
        since: datetime | None
        match effect.state:
            case EffectState.PLANNED:
                since = self._rows.time(row["planned_at"])
            case EffectState.UNKNOWN if effect.doubtful_for is not None:
                since = self._rows.time(row["now"]) - timedelta(seconds=effect.doubtful_for)
            case EffectState.DONE | EffectState.CANCELLED:
                since = effect.finished_at
            case _:
                since = told or called
        return ListedEffect(effect, since or effect.created_at)


def _order(effect: Effect) -> tuple[UUID, bytes]:
    return effect.event_id, effect.identity


def _place(cursor: str) -> tuple[UUID, bytes]:
    event, _, identity = cursor.partition(":")
    try:
        return UUID(event), bytes.fromhex(identity)
    except ValueError:
        raise ConfigError("`before` names no effect: copy it from the end of the page before this one") from None
