"""The consistency check in pieces: full or incremental, stored, and resumed by another process after a crash.

Each piece is one short snapshot: the next rows of a table, and what the rules say of them. What a rule finds is
looked at a second time, in a new snapshot, before it counts. The position is stored in the commit that stores what
was found up to there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from ...ids import LAST_ID, first_id, new_id
from ..rows import value_of
from ..session import Operations, Row, Session, reads, writes, writes_lightly
from .consistency import Violation
from .rules import WALKS, Key, Suspect, Walk, among, between, last_key, next_keys, read, written

Kind = Literal["full", "incremental"]
KINDS: tuple[Kind, ...] = ("full", "incremental")

LIMIT = 300.0
"""Seconds that one piece may take."""
WIDE = 100_000
"""Events in one step of a wide walk, which reads all identities."""
MOST = 1_000_000
"""Deliveries that one incremental check looks at."""
OVERLAP = timedelta(minutes=5)
"""How far an incremental check goes back behind the last one: ids are made before the commit, on other hosts."""
FIRST = timedelta(hours=1)
"""What the first incremental check looks at."""
STALE = 86400.0
"""Seconds after which an unfinished check is given up, and not resumed."""
TRIES = 20
"""How many processes may take up the same check."""
KEPT = 30 * 86400.0
"""Seconds that results are kept."""
SAMPLE = 10
"""Ids that are kept of each rule."""

ACTIONS = "actions"
ORDER: dict[Kind, tuple[str, ...]] = {
    "full": tuple(WALKS),
    "incremental": ("deliveries", "requests", "events", ACTIONS),
}
"""The walks of each kind, in their order."""


class Position(Struct, frozen=True):
    """Where a check is: in which walk, after which row. `last`: the last row of the table when the walk began, so
    that it ends however many rows arrive."""

    walk: str
    after: list[str | int] | None = None
    last: list[str | int] | None = None


class Check(Struct, frozen=True):
    """A consistency check, as it is stored."""

    id: UUID
    kind: Kind
    slot: datetime | None
    """The time that it was planned for; None if an operator asked for it."""
    since: datetime | None
    until: datetime | None
    """The arrivals that an incremental check looks at."""
    started_at: datetime
    ended_at: datetime | None
    """None while it runs, or if its process died and no other has taken it up."""
    fence: int
    holder: str
    row_count: int
    """Rows that it has looked at."""
    problem: str | None
    """Why it did not come to its end, or was interrupted last."""
    violations: tuple[Violation, ...] = ()
    """What it found, with up to ten ids each."""
    position: Position | None = None

    @property
    def whole(self) -> bool:
        """Whether it came to its end."""
        return self.ended_at is not None and self.problem is None


class Piece(Struct, frozen=True):
    """One step of a check."""

    rows: int
    suspects: list[Suspect]
    then: Position | None
    """None: that was all."""


class Standing(Struct, frozen=True):
    """What the checks say of the inbox now."""

    checked_at: datetime | None
    """When the last full check ended; None if there was none."""
    violations: dict[str, int]
    """By rule: the most that the last full check, or one that began later, found."""

    @property
    def total(self) -> int:
        return sum(self.violations.values())


class Checks(Operations):
    """`store.checks`."""

    # ── looking ──

    async def look(self, check: Check, position: Position, size: int) -> Piece:
        """Look at the next rows, in one snapshot that no ack waits for."""
        return await self._database.scan(lambda db: _look(db, check, position, size), LIMIT)

    async def confirm(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """Those that a second look, in a new snapshot, finds again."""
        return await self._database.scan(lambda db: _again(db, suspects), LIMIT)

    # ── what is stored ──

    @reads
    async def needed(self, db: Session, kind: Kind, slot: datetime) -> bool:
        """Whether a check for this slot is to be begun or resumed: none has ended, and no process is at one."""
        for row in await db("check_of_slot", kind=kind, slot=slot):
            if not row["ended"]:
                return not row["held"]
            return False
        return True

    async def begin(self, kind: Kind, holder: str, *, slot: datetime | None = None, lease: float) -> Check | None:
        """Begin a check, or resume the one that was interrupted. None if another process is at one, or the slot's
        has ended."""
        window = await self._database.scan(_window, LIMIT) if kind == "incremental" else (None, None)
        return await self._begin(kind, holder, slot, window, lease)

    @writes
    async def _begin(
        self,
        db: Session,
        kind: Kind,
        holder: str,
        slot: datetime | None,
        window: tuple[datetime | None, datetime | None],
        lease: float,
    ) -> Check | None:
        for row in await db("open_check", kind=kind, stale=STALE):
            if row["held"]:
                return None
            if not row["stale"] and row["fence"] < TRIES:
                [taken] = await db("take_check", id=row["id"], holder=holder, lease=lease)
                [found] = await _with_violations(db, [taken])
                return found
            why = row["problem"] or "its processes ended, and no other resumed it in time"
            await db("end_check", id=row["id"], fence=row["fence"], more=0, problem=why)
        facts = {"kind": kind, "slot": slot, "since": window[0], "until": window[1], "holder": holder}
        begun = await db("begin_check", id=new_id(), lease=lease, **facts)
        return _check(begun[0]) if begun else None

    @writes_lightly
    async def renew(self, db: Session, check: Check, lease: float) -> bool:
        return bool(await db("renew_check", id=check.id, fence=check.fence, lease=lease))

    @writes_lightly
    async def advance(
        self, db: Session, check: Check, position: Position, more: int, found: Sequence[Violation], lease: float
    ) -> bool:
        """Store how far it has come, with what it found since the last time; False if another process took it."""
        where = {"id": check.id, "fence": check.fence, "position": msgspec.json.encode(position).decode()}
        if not await db("advance_check", **where, more=more, lease=lease):
            return False
        await _count(db, check, found)
        return True

    @writes_lightly
    async def give_up(self, db: Session, check: Check, problem: str | None) -> None:
        """Let the next process resume it immediately."""
        await db("give_up_check", id=check.id, fence=check.fence, problem=problem)

    @writes
    async def end(self, db: Session, check: Check, more: int, found: Sequence[Violation]) -> Check | None:
        """Store that it came to its end, with what it found since the last time, in one commit: resumed after it, a
        check would count everything again. None if another process took it."""
        ended = await db("end_check", id=check.id, fence=check.fence, more=more, problem=None)
        if ended:
            await _count(db, check, found)
        if check.kind == "full":
            await db("forget_violations", keep=KEPT)
            await db("forget_checks", keep=KEPT)
        return next(iter(await _with_violations(db, ended)), None)

    # ── reading ──

    @reads
    async def last(self, db: Session, most: int = 1) -> list[Check]:
        """The last checks of each kind, the newest first."""
        return await _with_violations(db, await db("last_checks", most=most))

    @reads
    async def standing(self, db: Session) -> Standing:
        """What metrics need: two short queries."""
        return await standing(db)


async def standing(db: Session) -> Standing:
    """What the checks say now, within an operation."""
    ended = await db("last_full")
    begun = ended[0]["started_at"] if ended else datetime.fromtimestamp(0, UTC)
    found = {row["rule"]: row["count"] for row in await db("standing_violations", begun=begun)}
    return Standing(ended[0]["ended_at"] if ended else None, found)


# ── one piece ──


async def _look(db: Session, check: Check, position: Position, size: int) -> Piece:
    name = position.walk
    walk = WALKS.get(name)
    bounds = await _bounds(db, check, walk, position)
    if bounds is None:
        return Piece(0, [], _following(check.kind, name))
    if walk is None:
        return await _look_at_actions(db, check, bounds, size)
    after, last = bounds
    if walk.wide:
        ends = await next_keys(db, walk, after, last, 1, skip=WIDE - 1)
        end = ends[0] if ends else last
        found = [one for rule in walk.rules for one in await between(db, rule, after, end)]
        return Piece(0, found, _at(name, end, last) if ends else _following(check.kind, name))
    keys = await next_keys(db, walk, after, last, size)
    found = [one for rule in walk.rules for one in await among(db, rule, keys)]
    rows = len(keys)
    if check.kind == "incremental" and name == "events":
        more, others = await _look_at_parts(db, [key[0] for key in keys])
        rows, found = rows + more, found + others
    return Piece(rows, found, _at(name, keys[-1], last) if len(keys) == size else _following(check.kind, name))


async def _look_at_actions(db: Session, check: Check, bounds: tuple[Key, Key], size: int) -> Piece:
    """Look at the events that operators acted on, old ones too."""
    (after,), (last,) = bounds
    rows = await db("acted_events", after=after, last=last, most=size)
    events = list(dict.fromkeys(row["event_id"] for row in rows if row["event_id"] is not None))
    found = [one for rule in WALKS["events"].rules for one in await among(db, rule, [(ident,) for ident in events])]
    more, others = await _look_at_parts(db, events)
    then = _at(ACTIONS, (rows[-1]["id"],), (last,)) if len(rows) == size else _following(check.kind, ACTIONS)
    return Piece(len(events) + more, found + others, then)


async def _look_at_parts(db: Session, events: list[UUID]) -> tuple[int, list[Suspect]]:
    """Look at the attempts, effects, calls, guards, their answers and the handlers' of some events."""
    if not events:
        return 0, []
    effects = await db("effects_to_check", events=events)
    parts: dict[str, list[Row]] = {
        "attempts": await db("attempts_to_check", events=events),
        "effects": effects,
        "effect_calls": await db("calls_to_check", identities=[row["key_0"] for row in effects]),
        "guards": await db("guards_to_check", events=events),
        "guard_answers": await db("answers_to_check", events=events),
        "answers": await db("kept_answers_to_check", events=events),
    }
    found: list[Suspect] = []
    for name, rows in parts.items():
        keys = [WALKS[name].key_of(row) for row in rows]
        for rule in WALKS[name].rules:
            found += await among(db, rule, keys)
    return sum(map(len, parts.values())), found


async def _again(db: Session, suspects: Sequence[Suspect]) -> list[Suspect]:
    by_rule: dict[str, dict[Key, None]] = {}
    for one in suspects:
        by_rule.setdefault(one.rule, {})[one.key] = None
    return [found for rule, keys in by_rule.items() for found in await among(db, rule, list(keys))]


# ── positions ──


def first_position(check: Check) -> Position:
    """Where a check begins, or was interrupted."""
    return check.position or Position(ORDER[check.kind][0])


async def _bounds(db: Session, check: Check, walk: Walk | None, position: Position) -> tuple[Key, Key] | None:
    """The keys between which to look; None if there is nothing."""
    if position.after is not None and position.last is not None:
        if walk is None:
            return (UUID(str(position.after[0])),), (UUID(str(position.last[0])),)
        return read(walk, position.after), read(walk, position.last)
    if check.since is None or check.until is None:
        assert walk is not None, "only incremental checks read the audit log"
        last = await last_key(db, walk)
        return None if last is None else (walk.start, last)
    rest = () if walk is None else walk.start[1:]
    ends = tuple(2**31 - 1 for _ in rest)
    return (_id_at(check.since), *rest), (_id_at(check.until + timedelta(milliseconds=1)), *ends)


def _id_at(moment: datetime) -> UUID:
    return first_id(moment.timestamp())


def _at(walk: str, after: Key, last: Key) -> Position:
    return Position(walk, written(after), written(last))


def _following(kind: Kind, walk: str) -> Position | None:
    order = ORDER[kind]
    place = order.index(walk) + 1
    return Position(order[place]) if place < len(order) else None


async def _window(db: Session) -> tuple[datetime, datetime]:
    """The arrivals that the next incremental check looks at: those since the last check, or the first of them."""
    [row] = await db("covered")
    now: datetime = row["now_at"]
    since = (row["covered_until"] or now - FIRST) - OVERLAP
    walk = WALKS["deliveries"]
    full = await next_keys(db, walk, (_id_at(since), -1), (LAST_ID, 2**31 - 1), 1, skip=MOST)
    until = min(now, _time_of(full[0][0])) if full else now
    return min(since, until), until


def _time_of(ident: UUID) -> datetime:
    return datetime.fromtimestamp((ident.int >> 80) / 1000, UTC)


# ── rows ──


async def _count(db: Session, check: Check, found: Sequence[Violation]) -> None:
    rows = [(one.kind, one.count, msgspec.json.encode(one.sample).decode()) for one in found]
    if rows:
        await db("count_violations", id=check.id, found=rows)


async def _with_violations(db: Session, rows: Sequence[Row]) -> list[Check]:
    found: dict[UUID, list[Violation]] = {}
    if rows:
        for row in await db("violations_of", checks=[row["id"] for row in rows]):
            sample = msgspec.json.decode(row["sample"], type=tuple[str, ...])
            found.setdefault(row["check_id"], []).append(Violation(row["rule"], row["count"], sample))
    return [_check(row, found) for row in rows]


def _check(row: Row, found: Mapping[UUID, list[Violation]] | None = None) -> Check:
    place: Any = row["position"]
    position = None if place is None else msgspec.json.decode(place, type=Position)
    violations = tuple((found or {}).get(row["id"], ()))
    return value_of(Check, row, position=position, violations=violations)
