"""Finding events among many.

A filter becomes streams: ranges of indexes in the order of ids. One is walked until enough events were met for which
the whole filter holds; several are merged, of which few are looked at first. Both look at a bounded number, and a
page says where it stopped: so no search is slow without saying why, whatever a planner thinks of a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from ...clock import Clock
from ...ids import FIRST_ID, LAST_ID, effect_identity, first_id, key_identity
from ...model import Kind, base_source
from ...states import State
from ..causes import effect_cause
from ..history import EventRow
from ..rows import value_of
from ..session import Database, Operations, Row, Session, searches
from .filters import EVERYTHING, LAST, Filter, condition

STRETCH = 5_000
"""Events that one page examines at most;"""
SHORT_STRETCH = 1_000
"""fewer if their bodies must be read, or if each is on another disk page."""
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
NO_LIMIT = 2**63 - 1


class Page(Struct, frozen=True):
    """Events, the newest first, and how far the search has come."""

    events: tuple[EventRow, ...]
    next: UUID | None
    """The next page begins before this one, even if this page is empty; None: this is the last."""
    looked_at: int | None
    """How many events were looked at before the search stopped short of a full page; None when it did not."""


class FailureGroup(Struct, frozen=True):
    """Failing or marked events with one cause."""

    source: str
    type: str
    cause: str
    count: int
    first_at: datetime
    """When the first of them was received,"""
    last_at: datetime
    """and when the last of them failed or was marked."""
    sample: UUID
    """The newest of them."""
    failed: int
    needs_review: int
    retrying: int
    marked: int
    """Events with a mark for operators."""
    effect: str | None = None
    """If they are only marked: the name of the effect that they are marked for."""


class Lag(Struct, frozen=True):
    """The backlog of one kind."""

    kind: Kind
    pending: int
    retrying: int
    processing: int
    overdue: float | None
    """Seconds since the first of those that wait was due; negative when none is yet; None when none waits."""
    age: float
    """Seconds since the oldest was received."""
    unhandled: str | None = None
    """Why it is not processed: `no handler` in any live worker, or `no handler of this version`, if one handles the
    type in others; with `here` added if no worker lives: in this application."""


class Stream(Struct, frozen=True):
    """A stream of `search.sql`, and the values that it needs: those of `:stream_NAME`."""

    name: str
    values: Mapping[str, Any] = {}


ALL = Stream("stream_all")


class Part(Struct, frozen=True):
    """Streams from one id up to before another."""

    streams: Sequence[Stream]
    low: UUID
    high: UUID


class Search(Operations):
    """`store.search`. Reads only."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock

    @searches
    async def page(
        self, db: Session, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> Page:
        """One stretch of the search, from before `before`. May be short, or empty, and not the last."""
        found: tuple[EventRow, ...] = ()
        for part in self._parts(where, await _streams(db, where), before):
            page = await _walk(db, where, part, limit - len(found))
            found += page.events
            if page.next is not None:
                return Page(found, page.next, page.looked_at)
        return Page(found, None, None)

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        """As many stretches as fill the page: fewer than `limit` means that there are no more."""
        found: list[EventRow] = []
        while len(found) < limit:
            page = await self.page(where, before=before, limit=limit - len(found))
            found += page.events
            if page.next is None:
                break
            before = page.next
        return found

    async def count(self, where: Filter, *, seconds: float = 10.0) -> int:
        """How many there are, exactly; Unavailable when that takes longer."""
        return await self._database.scan(lambda db: self._count(db, where), seconds)

    async def _count(self, db: Session, where: Filter) -> int:
        streams = await _streams(db, where)
        holds, values = condition(db, where)
        if streams == [ALL]:
            return await _number(db, db.piece("size_of_set").replace("{where}", holds), values)
        n = 0
        for part in self._parts(where, streams, None):
            merged, needed = _merged(db, part, NO_LIMIT)
            sql = db.piece("count_of_streams").replace("{streams}", merged).replace("{where}", holds)
            n += await _number(db, sql, values | needed)
        return n

    @searches
    async def failures(
        self, db: Session, source: str | None = None, *, most: int = MOST_FAILURES
    ) -> list[FailureGroup]:
        """Return failing and marked events by cause, the most frequent first; examines the newest `most` in each
        state."""
        groups: dict[tuple[str, str, str], FailureGroup] = {}
        for group in map(_group, await db("failures", source=source, most=most)):
            known = groups.get((group.source, group.type, group.cause))
            groups[group.source, group.type, group.cause] = group if known is None else _both(known, group)
        return sorted(groups.values(), key=lambda group: (group.count, group.last_at), reverse=True)

    @searches
    async def lag(self, db: Session) -> list[Lag]:
        """Every kind with events that are not settled yet, that with the oldest first."""
        counted = ("pending", "retrying", "processing", "overdue", "age")
        found = await db("lag")
        return [Lag(value_of(Kind, row), *(row[name] for name in counted)) for row in found]

    @searches
    async def kinds(self, db: Session, source: str | None = None) -> list[Kind]:
        """Every kind that there are events of, or those of one source; one more than may be walked, if so many."""
        return await _kinds(db, source)

    async def by_source(self, *, seconds: float = 10.0) -> dict[str, dict[State, int]]:
        """How many events of each source are in each state, exactly; Unavailable when that takes longer."""
        counts: dict[str, dict[State, int]] = {}
        for row in await self._database.scan(lambda db: db("count_by_source"), seconds):
            counts.setdefault(row["source"], {})[State(row["state"])] = row["n"]
        return counts

    def _parts(self, where: Filter, streams: Sequence[Stream], before: UUID | None) -> list[Part]:
        """The streams between the ids of the filter's time, with some slack; before them what a time passes over."""
        if not streams:
            return []
        ahead, behind = max(self._clock.offset, 0.0), max(-self._clock.offset, 0.0)
        low, high = FIRST_ID, before or LAST_ID
        if where.since is not None:
            low = first_id((where.since - SLACK).timestamp() - ahead)
        if where.until is None:
            return [Part(streams, low, high)]
        until = first_id((where.until + SLACK).timestamp() + behind)
        late = [Part([Stream("stream_accepted")], until, high)] if until < high else []
        return [*late, Part(streams, low, min(high, until))]


# ── from a filter to streams ──


async def _streams(db: Session, where: Filter) -> list[Stream]:
    """Disjoint streams that together have every event for which it holds; the narrowest that there are."""
    key = where.key
    if key is not None and _is_exact(key):
        identities = [key_identity(source, key.encode()) for source in await _sources(db, where)]
        owners = await db("owners_of_keys", identities=identities, nothing=b"", limit=MOST_STREAMS)
        events = _by_id(owners)
        stages = [Stream("stream_stages", event.values) for event in events]
        return [*events, *stages, Stream("stream_key", {"value": key})]
    if where.effect is not None and ":" in where.effect:
        name, _, of = where.effect.partition(":")
        identities = [effect_identity(scope, name, of) for scope in (*await _sources(db, where), "")]
        return _by_id(await db("owners_of_effects", identities=identities))
    for stream, value in (("object", where.object_id), ("account", where.account), ("cause", where.cause)):
        if value is not None:
            return [Stream(f"stream_{stream}", {"value": value})]
    if where.attention:  # all that failed or are in review; of the others those that are marked
        wanted = {State.FAILED, State.NEEDS_REVIEW} & set(where.states or State)
        return [*_in_states(wanted), Stream("stream_marked")]
    return await _by_state(db, where) or await _by_kind(db, where)


def _by_id(owners: Sequence[Row]) -> list[Stream]:
    found = dict.fromkeys(row["event_id"] for row in owners)
    return [Stream("stream_id", {"value": event_id}) for event_id in found][:MOST_STREAMS]


def _in_states(states: Iterable[State]) -> list[Stream]:
    return [Stream("stream_state", {"value": state.value}) for state in sorted(states)]


async def _by_state(db: Session, where: Filter) -> list[Stream]:
    """Nothing, where the states are no help."""
    if not where.states or State.PROCESSED in where.states:
        return []
    streams = _in_states(FEW & set(where.states))
    if State.PROCESSING in where.states:
        streams.append(Stream("stream_leased"))
    if State.PENDING in where.states:
        sql = db.piece("queue_length").replace("{most}", str(SHORT_QUEUE + 1))
        if await _number(db, sql, {}) > SHORT_QUEUE:
            return []
        streams += [Stream("stream_waiting"), Stream("stream_waiting_alone")]
    return streams


async def _by_kind(db: Session, where: Filter) -> list[Stream]:
    if where.source is not None and where.type is not None and not where.type.endswith("*"):
        return [Stream("stream_kind", {"source": where.source, "type": where.type})]
    if where.source is None and where.type is None:
        return [ALL]
    kinds = await _kinds(db, where.source)
    wanted = [kind for kind in kinds if where.type is None or _is_of(kind.type, where.type)]
    if len(kinds) > MOST_KINDS or len(wanted) > MOST_STREAMS:
        return [ALL]
    return [Stream("stream_kind", {"source": kind.source, "type": kind.type}) for kind in wanted]


async def _kinds(db: Session, source: str | None) -> list[Kind]:
    first, last = ("", LAST) if source is None else (source, source)
    bounds = {"source": first, "type": "", "last_source": last, "last_type": LAST}
    found = await db("kinds_between", **bounds, limit=MOST_KINDS + 1)
    return [Kind(row["source"], row["type"]) for row in found]


async def _sources(db: Session, where: Filter) -> set[str]:
    """The filter's source; or every one that was ever served or imported, and those of the kinds that can be
    walked."""
    if where.source is not None:
        return {base_source(where.source)}
    return {row["name"] for row in await db("sources")} | {kind.source for kind in await _kinds(db, None)}


# ── along streams ──


async def _walk(db: Session, where: Filter, part: Part, limit: int) -> Page:
    """A page of one part, by one statement or some."""
    found: dict[UUID, EventRow] = {}
    looked_at = 0
    for each in _steps(where, part.streams, limit):
        more, edge, n = await _look(db, where, part, limit - len(found), each)
        found |= more
        if n is None or edge is None:
            return Page(tuple(found.values()), edge, None)
        looked_at, part = looked_at + n, replace(part, high=edge)
    return Page(tuple(found.values()), part.high, looked_at)


async def _look(
    db: Session, where: Filter, part: Part, limit: int, each: int
) -> tuple[dict[UUID, EventRow], UUID | None, int | None]:
    """Return the events found among the newest of each stream, where to continue, and how many were examined if the
    page is short."""
    merged, values = _merged(db, part, each)
    holds, needed = condition(db, where)
    sql = db.piece("page_of_one" if len(part.streams) == 1 else "page_of_many")
    sql = sql.replace("{where}", holds).replace("{most}", str(each)).replace("{streams}", merged)
    rows = await db.run(sql, {"limit": limit, **values, **needed})
    found: dict[UUID, EventRow] = {}
    for row in rows:
        if row["holds"]:
            found[row["id"]] = value_of(EventRow, row)
        if row["ends"] and len(found) < limit:  # nothing below it is known of all streams
            return found, row["id"], row["looked"]
    return found, rows[-1]["id"] if rows and len(rows) >= limit else None, None


def _merged(db: Session, part: Part, each: int) -> tuple[str, dict[str, Any]]:
    """The streams in one query, no more than so many of each, and its values."""
    values: dict[str, Any] = {"high": part.high, "low": part.low}
    what = "*" if len(part.streams) == 1 else "id"
    texts = []
    for place, stream in enumerate(part.streams):
        text = db.piece(stream.name).replace("{most}", str(each)).replace("{what}", what)
        values |= {f"stream{place}_{name}": value for name, value in stream.values.items()}
        text = text.replace(":stream_", f":stream{place}_")
        texts.append(db.piece("one_stream").replace("{stream}", text))
    return "\nUNION ALL\n".join(texts), values


async def _number(db: Session, sql: str, values: Mapping[str, Any]) -> int:
    [row] = await db.run(sql, values)
    n: int = row["n"]
    return n


def _group(row: Row) -> FailureGroup:
    name, cause = row["effect"], row["cause"]
    if name is not None:
        cause = effect_cause(name, row["effect_state"], row["effect_error"])
    return value_of(FailureGroup, row, cause=cause, count=row["n"], sample=row["sample_id"])


def _both(one: FailureGroup, other: FailureGroup) -> FailureGroup:
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
    """Return how many events of each stream each try examines: the first try fills most merged pages."""
    is_dear = where.text is not None or streams[0].name in SPARSE
    most = (SHORT_STRETCH if is_dear else STRETCH) // len(streams)
    steps = (most,) if len(streams) == 1 else (limit, min(10 * limit, most), most)
    return [max(each, limit) for each in steps]


def _is_exact(key: str) -> bool:
    """Whether the key as it is shown is the key itself: nothing in it was replaced or cut off."""
    return "\ufffd" not in key and "…sha256:" not in key


def _is_of(kind: str, wanted: str) -> bool:
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted
