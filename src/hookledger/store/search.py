"""Finding events among many: `store.search`, and the way it goes, which both stores share.

A filter becomes streams: ranges of indexes in the order of ids. One is walked until enough events were met for which
the whole filter holds; several are merged, of which few are looked at first. Both look at a bounded number, and a
page says where it stopped: so no search is slow without saying why, whatever a planner thinks of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from ..causes import effect_cause
from ..filters import EVERYTHING, Filter
from ..identities import effect_identity, key_identity
from ..model import EventRow, Kind
from ..states import State
from .filtering import LAST, Condition
from .rows import Row, Rows

STRETCH = 5_000
"""Events that are looked at for a page, before it is given as it is;"""
SHORT_STRETCH = 1_000
"""if their bodies must be read, or if they lie far apart, each on a page of its own."""
SPARSE = frozenset({"stream_state", "stream_cause", "stream_marked"})
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
    effect: str | None = None
    """Where they are only marked: the name of the effect that they are marked for."""


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
    unhandled: str | None = None
    """Why none of it is processed: `no handler` in any live worker, or `no handler here` while none lives."""


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

    async def kinds(self, source: str | None = None) -> list[Kind]:
        """Every kind that there are events of, or those of one source; one more than may be walked, if so many."""
        ...

    async def by_source(self, *, seconds: float = 10.0) -> dict[str, dict[State, int]]:
        """How many events of each source are in each state, exactly; Unavailable when that takes longer."""
        ...


class Stream(Struct, frozen=True):
    """A piece of `search.sql` and the values it needs."""

    name: str
    values: tuple[Any, ...] = ()


ALL = Stream("stream_all")


class Part(Struct, frozen=True):
    """Streams from one id up to before another."""

    streams: Sequence[Stream]
    low: UUID
    high: UUID


class Dialect(Protocol):
    """How a store asks its database."""

    def sql(self, name: str) -> str: ...

    async def fetch(self, sql: str, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """The rows; Unavailable when it takes longer than so many seconds."""
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
        found: tuple[EventRow, ...] = ()
        for part in self._parts(where, await self._streams(where), before):
            page = await self._walk(where, part, limit - len(found))
            found += page.events
            if page.next is not None:
                return Page(found, page.next, page.looked_at)
        return Page(found, None, None)

    async def _walk(self, where: Filter, part: Part, limit: int) -> Page:
        """A page of one part, by one statement or some."""
        found: dict[UUID, EventRow] = {}
        looked_at = 0
        for each in _steps(where, part.streams, limit):
            more, edge, n = await self._look(where, part, limit - len(found), each)
            found |= more
            if n is None or edge is None:
                return Page(tuple(found.values()), edge, None)
            looked_at, part = looked_at + n, replace(part, high=edge)
        return Page(tuple(found.values()), part.high, looked_at)

    async def _look(
        self, where: Filter, part: Part, limit: int, each: int
    ) -> tuple[dict[UUID, EventRow], UUID | None, int | None]:
        """What is found among the newest of each stream, where to go on, and after how many where it falls short."""
        merged, values = self._merged(part, str(each), limit)
        condition, values = self.condition.of(where, *values)
        sql = self._dialect.sql("page_of_one" if len(part.streams) == 1 else "page_of_many")
        sql = sql.replace("{where}", condition).replace("{most}", str(each)).replace("{streams}", merged)
        rows = await self._dialect.fetch(sql, values)
        found: dict[UUID, EventRow] = {}
        for row in rows:
            ident = self._rows.ident(row["id"])
            if row["holds"]:
                found[ident] = self._rows.event(row)
            if row["ends"] and len(found) < limit:  # nothing below it is known of all streams
                return found, ident, row["looked_at"]
        return found, ident if rows and len(rows) >= limit else None, None

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
        if streams == [ALL]:
            condition, values = self.condition.of(where)
            return await self._number(self._dialect.sql("count_all").replace("{where}", condition), values, seconds)
        n = 0
        for part in self._parts(where, streams, None):
            merged, values = self._merged(part, self._dialect.sql("no_limit"))
            condition, values = self.condition.of(where, *values)
            sql = self._dialect.sql("count").replace("{streams}", merged).replace("{where}", condition)
            n += await self._number(sql, values, seconds)
        return n

    async def _number(self, sql: str, values: Sequence[Any], seconds: float) -> int:
        n: int = (await self._dialect.fetch(sql, values, seconds))[0]["n"]
        return n

    async def failures(self, source: str | None = None, *, most: int = MOST_FAILURES) -> list[FailureGroup]:
        found = await self._dialect.fetch(self._dialect.sql("failures"), (most, source))
        groups: dict[tuple[str, str, str], FailureGroup] = {}
        for group in map(self._group, found):
            known = groups.get((group.source, group.type, group.cause))
            groups[group.source, group.type, group.cause] = group if known is None else _merged(known, group)
        return sorted(groups.values(), key=lambda group: (group.count, group.last_at), reverse=True)

    def _group(self, row: Row) -> FailureGroup:
        name, cause = row["effect"], row["cause"]
        return FailureGroup(
            row["source"],
            row["type"],
            cause if name is None else effect_cause(name, row["effect_state"], row["effect_error"]),
            row["n"],
            self._rows.time(row["first_at"]),
            self._rows.time(row["last_at"]),
            self._rows.ident(row["sample"]),
            row["failed"],
            row["needs_review"],
            row["retrying"],
            row["marked"],
            name,
        )

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
        if where.account is not None:
            return [Stream("stream_account", (where.account,))]
        if where.cause is not None:
            return [Stream("stream_cause", (where.cause,))]
        if where.attention:  # all that failed or are in review; of the others those that are marked
            wanted = {State.FAILED, State.NEEDS_REVIEW} & set(where.states or State)
            return [*(Stream("stream_state", (state.value,)) for state in sorted(wanted)), Stream("stream_marked")]
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
        kinds = await self.kinds(where.source)
        wanted = [kind for kind in kinds if where.type is None or _is_of(kind.type, where.type)]
        if len(kinds) > MOST_KINDS or len(wanted) > MOST_STREAMS:
            return [ALL]
        return [Stream("stream_kind", (kind.source, kind.type)) for kind in wanted]

    async def kinds(self, source: str | None = None) -> list[Kind]:
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
        return known | {kind.source for kind in await self.kinds()}

    def _parts(self, where: Filter, streams: Sequence[Stream], before: UUID | None) -> list[Part]:
        """The streams between the ids of the filter's time, with some slack; before them what a time passes over."""
        if not streams:
            return []
        ahead, behind = max(self._offset(), 0.0), max(-self._offset(), 0.0)
        low, high = FIRST_ID, before or LAST_ID
        if where.since is not None:
            low = _first_id(where.since - SLACK - timedelta(seconds=ahead))
        if where.until is None:
            return [Part(streams, low, high)]
        until = _first_id(where.until + SLACK + timedelta(seconds=behind))
        late = [Part([Stream("stream_admitted")], until, high)] if until < high else []
        return [*late, Part(streams, low, min(high, until))]

    def _merged(self, part: Part, each: str, *given: Any) -> tuple[str, list[Any]]:
        """The streams in one query, and its values: the bounds, those given, and what the streams need."""
        values: list[Any] = [self._ident(part.high), self._ident(part.low), *given]
        what = "*" if len(part.streams) == 1 else "id"
        texts = []
        for stream in part.streams:
            text = self._dialect.sql(stream.name).replace("{most}", each).replace("{what}", what)
            for place, value in enumerate(stream.values):
                values.append(value)
                text = text.replace(f"{{{place}}}", f"{self._parameter}{len(values)}")
            texts.append(self._dialect.sql("one_stream").replace("{0}", text))
        return "\nUNION ALL\n".join(texts), values


def _merged(one: FailureGroup, other: FailureGroup) -> FailureGroup:
    """Two of one cause: the database groups by what effects said, ids and all."""
    counted = ("count", "failed", "needs_review", "retrying", "marked")
    return replace(
        one,
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
        sample=max(one.sample, other.sample),
        **{name: getattr(one, name) + getattr(other, name) for name in counted},
    )


def _steps(where: Filter, streams: Sequence[Stream], limit: int) -> Sequence[int]:
    """How many events of each stream may be looked at, again and again: most merged pages are full at once."""
    is_dear = where.text is not None or streams[0].name in SPARSE
    most = (SHORT_STRETCH if is_dear else STRETCH) // len(streams)
    steps = (most,) if len(streams) == 1 else (limit, min(10 * limit, most), most)
    return [max(each, limit) for each in steps]


def _is_exact(key: str) -> bool:
    """Whether the key as it is shown is the key itself: nothing in it was replaced or cut off."""
    return "\ufffd" not in key and "…sha256:" not in key


def _is_of(kind: str, wanted: str) -> bool:
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted


def _first_id(moment: datetime) -> UUID:
    """The first UUIDv7 of a millisecond, or of 1970."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)
