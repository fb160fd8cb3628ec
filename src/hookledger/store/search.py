"""Finding events among many: `store.search`, and the way it goes, which both stores share.

A filter becomes streams: ranges of indexes in the order of ids. The newest ids of each are merged, and those events
read for which the whole filter holds. Few are looked at first, then a bounded number, and a page says where it
stopped: so no search is slow without saying why, whatever a planner thinks of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct

from ..filters import EVERYTHING, Filter
from ..model import EventRow, Kind, effect_identity, key_identity
from ..states import State
from .filtering import LAST, Condition
from .rows import Rows

STRETCH = 5_000
"""Events that are looked at for a page, before it is given as it is;"""
STRETCH_OF_BODIES = 1_000
"""if their bodies must be read."""
SHORT_QUEUE = 20_000
"""So many waiting events are sorted by id for a page; a longer queue is walked among all events."""
MOST_KINDS = 1_000
"""Kinds that are walked,"""
MOST_STREAMS = 64
"""and streams that are merged. Beyond them, all events are walked."""
SLACK = timedelta(hours=1)
"""How far the clock in an id may be from the database's."""
FEW = frozenset({State.RETRYING, State.SKIPPED, State.FAILED, State.NEEDS_REVIEW, State.DISCARDED})
"""The states of the index `events_in_state`."""
MOST_FAILURES = 20_000
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)


class Page(Struct, frozen=True):
    """Events, the newest first, and how far the search has come."""

    events: tuple[EventRow, ...]
    next: UUID | None
    """Go on before this one, be there events on this page or not; None: there are no more."""
    looked_at: int | None
    """How many events were looked at before the search stopped short of a full page; None when it did not."""


class FailureGroup(Struct, frozen=True):
    """Events in trouble for one cause."""

    source: str
    type: str
    cause: str
    count: int
    first_at: datetime
    """When the first of them came to be so,"""
    last_at: datetime
    """and the last."""
    sample: UUID
    """The newest of them."""
    failed: int
    needs_review: int
    retrying: int
    marked: int
    """That a person should look at."""


class Lag(Struct, frozen=True):
    """What is not settled yet, of one kind."""

    kind: Kind
    pending: int
    retrying: int
    processing: int
    overdue: float | None
    """Seconds since the first of those that wait was due; negative when none is yet; None when none waits."""
    age: float
    """Seconds since the oldest was received."""


class Search(Protocol):
    """`store.search`. Reads only."""

    async def page(self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50) -> Page:
        """One stretch of the search, from before `before`. May be short, or empty, and not the last."""
        ...

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        """As many stretches as fill the page: fewer than `limit` means that there are no more."""
        ...

    async def count(self, where: Filter, *, seconds: float = 10.0) -> int:
        """How many there are, exactly; Unavailable when that takes longer."""
        ...

    async def failures(self, source: str | None = None, *, most: int = MOST_FAILURES) -> list[FailureGroup]:
        """What is in trouble by cause, the most frequent first; of the newest `most` in each state of trouble."""
        ...

    async def lag(self) -> list[Lag]:
        """Every kind with events that are not settled yet, that with the oldest first."""
        ...

    async def by_source(self, *, seconds: float = 10.0) -> dict[str, dict[State, int]]:
        """How many events of each source are in each state, exactly; Unavailable when that takes longer."""
        ...


class Stream(Struct, frozen=True):
    """A piece of `search.sql` and the values it needs."""

    name: str
    values: tuple[Any, ...] = ()


ALL = Stream("stream_all")


class Dialect(Protocol):
    """How a store asks its database."""

    def sql(self, name: str) -> str: ...

    async def fetch(self, sql: str, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """The rows; Unavailable when it takes longer than so many seconds."""
        ...

    async def rows(self, condition: str, values: Sequence[Any], ids: Sequence[UUID], limit: int) -> list[Any]:
        """Those of the ids, which come the newest first, for which it holds. The first two values are free."""
        ...

    async def owners(self, name: str, identities: Sequence[bytes]) -> list[UUID]:
        """The events that these identities lead to, by the query of this name."""
        ...

    def now(self) -> tuple[Any, ...]:
        """The present, where queries need to be given it."""
        ...


class Searching:
    """`Search` in any dialect. `ident`: how it takes an id; `offset`: how far its clock is ahead of the ids'."""

    def __init__(
        self,
        dialect: Dialect,
        pieces: Mapping[str, str],
        parameter: str,
        *,
        moment: Callable[[datetime], Any],
        ident: Callable[[UUID], Any],
        rows: Rows,
        offset: Callable[[], float],
    ) -> None:
        self._dialect = dialect
        self.condition = Condition(pieces, parameter, moment)
        """What a filter is in SQL, for those who act on what it means."""
        self._parameter = parameter
        self._ident = ident
        self._rows = rows
        self._offset = offset

    async def page(self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50) -> Page:
        streams = await self._streams(where)
        if not streams:
            return Page((), None, None)
        most = (STRETCH if where.text is None else STRETCH_OF_BODIES) // len(streams)
        found: list[EventRow] = []
        edge, looked_at = before, 0
        for each in (limit, min(10 * limit, most), most):  # most pages are full after the first
            more, edge, n = await self._look(where, streams, edge, limit - len(found), each)
            found, looked_at = found + more, looked_at + n
            if edge is None or len(found) >= limit:
                break
        if len(found) >= limit:
            return Page(tuple(found), found[-1].id, None)
        return Page(tuple(found), edge, None if edge is None else looked_at)

    async def _look(
        self, where: Filter, streams: Sequence[Stream], before: UUID | None, limit: int, each: int
    ) -> tuple[list[EventRow], UUID | None, int]:
        """What is found among the newest of the streams, where to go on, and how many were looked at."""
        each = max(each, limit)
        sql, values = self._merged(where, streams, before, str(each))
        ids: dict[int, list[UUID]] = {}
        for row in await self._dialect.fetch(sql, values):
            ids.setdefault(row["stream"], []).append(self._rows.ident(row["id"]))
        # A stream that gave all it might has more behind its last: nothing below that is known of all streams.
        edge = max((min(some) for some in ids.values() if len(some) >= each), default=None)
        known = sorted((i for some in ids.values() for i in some if edge is None or i >= edge), reverse=True)
        condition, needed = self.condition.of(where, None, None)
        found = await self._dialect.rows(condition, needed, list(dict.fromkeys(known)), limit)
        return [self._rows.event(row) for row in found], edge, len(known)

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        found: list[EventRow] = []
        while len(found) < limit:
            page = await self.page(where, before=before, limit=limit - len(found))
            found += page.events
            if page.next is None:
                break
            before = page.next
        return found

    async def count(self, where: Filter, *, seconds: float = 10.0) -> int:
        streams = await self._streams(where)
        if not streams:
            return 0
        if streams == [ALL]:
            condition, values = self.condition.of(where)
            sql = self._dialect.sql("count_all").replace("{where}", condition)
        else:
            merged, before = self._merged(where, streams, None, self._dialect.sql("no_limit"))
            condition, values = self.condition.of(where, *before)
            sql = self._dialect.sql("count").replace("{streams}", merged).replace("{where}", condition)
        n: int = (await self._dialect.fetch(sql, values, seconds))[0]["n"]
        return n

    async def failures(self, source: str | None = None, *, most: int = MOST_FAILURES) -> list[FailureGroup]:
        found = await self._dialect.fetch(self._dialect.sql("failures"), (most, source))
        return [
            FailureGroup(
                row["source"],
                row["type"],
                row["cause"],
                row["n"],
                self._rows.time(row["first_at"]),
                self._rows.time(row["last_at"]),
                self._rows.ident(row["sample"]),
                row["failed"],
                row["needs_review"],
                row["retrying"],
                row["marked"],
            )
            for row in found
        ]

    async def lag(self) -> list[Lag]:
        found = await self._dialect.fetch(self._dialect.sql("lag"), self._dialect.now())
        return [
            Lag(
                Kind(row["source"], row["type"]),
                row["pending"],
                row["retrying"],
                row["processing"],
                row["overdue"],
                row["age"],
            )
            for row in found
        ]

    async def by_source(self, *, seconds: float = 10.0) -> dict[str, dict[State, int]]:
        counts: dict[str, dict[State, int]] = {}
        for row in await self._dialect.fetch(self._dialect.sql("by_source"), (), seconds):
            counts.setdefault(row["source"], {})[State(row["state"])] = row["n"]
        return counts

    # ── from a filter to streams ──

    async def _streams(self, where: Filter) -> list[Stream]:
        """Disjoint streams that together have every event for which it holds; the narrowest that there are."""
        key = where.key
        if key is not None and _is_exact(key):
            owners = await self._owners(where, "owners", lambda scope: key_identity(scope, key.encode()))
            return [*(Stream("stream_id", (self._ident(i),)) for i in owners), Stream("stream_key", (key,))]
        if where.effect is not None and ":" in where.effect:
            name, _, of = where.effect.partition(":")
            owners = await self._owners(where, "effect_owners", lambda scope: effect_identity(scope, name, of), [""])
            return [Stream("stream_id", (self._ident(i),)) for i in owners]
        if where.object_id is not None:
            return [Stream("stream_object", (where.object_id,))]
        if where.cause is not None:
            return [Stream("stream_cause", (where.cause,))]
        if where.attention:
            return [Stream("stream_marked")]
        return await self._by_state(where) or await self._by_kind(where)

    async def _by_state(self, where: Filter) -> list[Stream]:
        """Nothing, where the states are no help."""
        if not where.states or State.PROCESSED in where.states:
            return []
        streams = [Stream("stream_state", (state.value,)) for state in sorted(FEW & set(where.states))]
        if State.PROCESSING in where.states:
            streams.append(Stream("stream_leased"))
        if State.PENDING in where.states:
            sql = self._dialect.sql("queue_length").replace("{most}", str(SHORT_QUEUE + 1))
            if (await self._dialect.fetch(sql, ()))[0]["n"] > SHORT_QUEUE:
                return []
            streams += [Stream("stream_waiting"), Stream("stream_waiting_alone")]
        return streams

    async def _by_kind(self, where: Filter) -> list[Stream]:
        if where.source is not None and where.type is not None and not where.type.endswith("*"):
            return [Stream("stream_kind", (where.source, where.type))]
        if where.source is None and where.type is None:
            return [ALL]
        kinds = await self._kinds(where.source)
        wanted = [kind for kind in kinds if where.type is None or _is_of(kind.type, where.type)]
        if len(kinds) > MOST_KINDS or len(wanted) > MOST_STREAMS:
            return [ALL]
        return [Stream("stream_kind", (kind.source, kind.type)) for kind in wanted]

    async def _kinds(self, source: str | None) -> list[Kind]:
        """Every kind that there are events of, or those of one source; one more than may be walked, if so many."""
        bounds = ("", "", LAST, LAST) if source is None else (source, "", source, LAST)
        found = await self._dialect.fetch(self._dialect.sql("kinds"), (*bounds, MOST_KINDS + 1))
        return [Kind(row["source"], row["type"]) for row in found]

    async def _owners(
        self, where: Filter, name: str, identity: Callable[[str], bytes], scopes: Sequence[str] = ()
    ) -> list[UUID]:
        """The events that an identity in the filter's source, or in any, leads to."""
        sources = {where.source} if where.source is not None else await self._sources()
        found = await self._dialect.owners(name, [identity(scope) for scope in (*sources, *scopes)])
        return list(dict.fromkeys(found))[:MOST_STREAMS]

    async def _sources(self) -> set[str]:
        """Every source that was ever served or imported, and those of the kinds that can be walked."""
        known = {row["name"] for row in await self._dialect.fetch(self._dialect.sql("sources"), ())}
        return known | {kind.source for kind in await self._kinds(None)}

    def _merged(
        self, where: Filter, streams: Iterable[Stream], before: UUID | None, each: str
    ) -> tuple[str, list[Any]]:
        """The streams in one query, and its values."""
        low, high, until = self._bounds(where, before)
        values: list[Any] = [self._ident(high), self._ident(low)]
        streams = list(streams)
        if until is not None and until < (before or LAST_ID):
            streams.append(Stream("stream_admitted", (self._ident(until), self._ident(before or LAST_ID))))
        texts = []
        for number, stream in enumerate(streams):
            text = self._dialect.sql(stream.name).replace("{n}", str(number)).replace("{most}", each)
            for place, value in enumerate(stream.values):
                values.append(value)
                text = text.replace(f"{{{place}}}", f"{self._parameter}{len(values)}")
            texts.append(self._dialect.sql("one_stream").replace("{0}", text))
        return "\nUNION ALL\n".join(texts), values

    def _bounds(self, where: Filter, before: UUID | None) -> tuple[UUID, UUID, UUID | None]:
        """The ids between which events of that time are, with some slack, and where the filter's time ends."""
        ahead, behind = max(self._offset(), 0.0), max(-self._offset(), 0.0)
        low, high, until = FIRST_ID, before or LAST_ID, None
        if where.since is not None:
            low = _first_id(where.since - SLACK - timedelta(seconds=ahead))
        if where.until is not None:
            until = _first_id(where.until + SLACK + timedelta(seconds=behind))
            high = min(high, until)
        return low, high, until


def _is_exact(key: str) -> bool:
    """Whether the key as it is shown is the key itself: nothing in it was replaced or cut off."""
    return "\ufffd" not in key and "…sha256:" not in key


def _is_of(kind: str, wanted: str) -> bool:
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted


def _first_id(moment: datetime) -> UUID:
    """The first UUIDv7 of a millisecond, or of 1970."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)
