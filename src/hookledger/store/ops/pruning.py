"""Pruning: walks in the order of time, window by window, and deletes what is past its retention period.

Every call is one short transaction that waits for no worker and blocks none. A crash at any moment leaves each event
whole or wholly pruned, and the audit log entry of the round counts it in the same commit. A crash of the database may
bring pruned rows back; the next round prunes them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct, field

from ...errors import WrongState
from ...ids import FIRST_ID, new_id
from ...states import DeliveryOutcome, State
from ..rows import NEW, value_of
from ..session import Operations, Row, Session, reads, writes_lightly
from .quarantine import QUARANTINED

RUNNING, OVER, INTERRUPTED = "pruning", "pruned", "interrupted"
"""The `to_state` of a round's audit log entry: while it runs, after its end, and if it was interrupted."""


class Candidate(Struct, frozen=True):
    """An event that a walk found."""

    id: UUID
    claim: int
    """The claim number; the event is pruned only if it has not changed."""
    source: str
    state: State
    finished_ago: float | None
    """Seconds; None while it is not finished."""
    open: bool
    """Whether an operator should look at it, so that it stays."""
    emptied: bool
    parent: UUID | None = None
    """Its event, if it is a stage: pruned with it."""


class Arrived(Struct, frozen=True):
    """A delivery that a walk found."""

    request_id: UUID
    item: int
    source: str
    first: bool
    """Whether it made its event, and is pruned with it."""
    duplicate: bool
    received_ago: float


class Tombstone(Struct, frozen=True):
    """What is left of a pruned event besides its identities and effects."""

    event_id: UUID
    source: str
    state: State
    """In which it was pruned."""
    pruned_at: datetime

    @property
    def words(self) -> str:
        rule = "failed" if self.state is State.FAILED else "events"
        return (
            f"event {self.event_id} of {self.source} was {self.state} and was pruned on "
            f"{self.pruned_at:%Y-%m-%d %H:%M} UTC (retention.{rule}); its key is still known"
        )


class Pruned(Struct):
    """What one round deleted, or would delete."""

    looked_at: int = 0
    events: int = 0
    payloads: int = 0
    """Events whose bytes were deleted; the events stay."""
    history: int = 0
    """Events whose tracebacks were deleted."""
    deliveries: int = 0
    """Rows of duplicates, and quarantined deliveries of events that were pruned before."""

    @property
    def total(self) -> int:
        return self.events + self.payloads + self.history + self.deliveries

    def add(self, other: Pruned) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def words(self) -> str:
        """Return it as text, for people and for the audit log."""
        parts = {
            "events": self.events,
            "events' bytes": self.payloads,
            "events' tracebacks": self.history,
            "deliveries": self.deliveries,
        }
        return ", ".join(f"{n:,} {name}" for name, n in parts.items() if n) or "nothing"


class Round(Struct):
    """One round of pruning: actor, reason, and what is committed.

    Every transaction that deletes something renews the lease for `lease` seconds and updates the round's audit log
    entry.
    """

    holder: str
    """The process that prunes."""
    actor: str
    reason: str
    lease: float
    id: UUID = field(default_factory=new_id)
    """The id of its audit log entry."""
    done: Pruned = field(default_factory=Pruned)

    @property
    def name(self) -> str:
        """The holder in the table of leases: the next process finds the audit log entry by it, and closes that."""
        return f"{self.holder} {self.id}"

    def words_with(self, step: Pruned) -> str:
        """Return the text of the audit log entry after this step."""
        total = Pruned()
        total.add(self.done)
        total.add(step)
        return total.words()


class Turn(Struct, frozen=True):
    """Which process holds the lease for pruning."""

    ours: bool
    holder: str = ""
    until: float = 0.0
    """Increases each time that the holder renews it."""
    interrupted: str | None = None
    """What the previous round had deleted, if it was interrupted."""


class Pruning(Operations):
    """`store.pruning`. With `round_` None it only counts what it would delete. Raises WrongState if another process
    took the lease."""

    @property
    def stops_others(self) -> bool:
        """Whether its transactions block all other writes, as on SQLite."""
        return self._database.exclusive

    # ── turns and walks ──

    @writes_lightly
    async def turn(self, db: Session, round_: Round) -> Turn:
        """Take or renew the lease, unless another process holds it. Closes the audit log entry of an interrupted
        round."""
        former = await db("whose_turn")
        if not await db("take_turn", holder=round_.name, lease=round_.lease):
            other = await db("whose_turn")
            return Turn(False, other[0]["holder"], other[0]["until"].timestamp()) if other else Turn(False)
        entry = _entry_of(former[0]["holder"]) if former else None
        if entry is None or entry == round_.id:
            return Turn(True)
        closed = await db("close_pruning", id=entry, how=INTERRUPTED)
        words = [": ".join((row["actor"], row["reason"], row["subject"])) for row in closed]
        return Turn(True, interrupted=words[0] if words else None)

    @writes_lightly
    async def end_turn(self, db: Session, round_: Round, how: str) -> None:
        """Release the lease and close the audit log entry: OVER or INTERRUPTED."""
        await db("end_turn", holder=round_.name)
        await db("close_pruning", id=round_.id, how=how)

    @writes_lightly
    async def position(self, db: Session, walk: str, again: float) -> UUID:
        """Return where a walk continues: at the beginning if it began more than `again` seconds ago."""
        [row] = await db("begin_walk", walk=walk, start=FIRST_ID, again=again)
        found: UUID = row["position_id"]
        return found

    @writes_lightly
    async def remember(self, db: Session, walk: str, position: UUID) -> None:
        await db("remember_walk", walk=walk, position=position)

    @reads
    async def events(self, db: Session, after: UUID, before: UUID, limit: int) -> list[Candidate]:
        """Return the next events between two ids, in any state."""
        return [
            value_of(Candidate, row) for row in await db("window_of_events", after=after, before=before, most=limit)
        ]

    @reads
    async def stages(self, db: Session, events: Sequence[UUID]) -> list[Candidate]:
        """Return the stages of these events, in any state."""
        return [value_of(Candidate, row) for row in await db("stages_to_prune", events=list(events))]

    @reads
    async def deliveries(self, db: Session, after: UUID, before: UUID, limit: int) -> list[Arrived]:
        """Return all deliveries of the next `limit` requests between two ids."""
        return [_arrived(row) for row in await db("window_of_deliveries", after=after, before=before, most=limit)]

    # ── taking away ──

    @writes_lightly
    async def prune(self, db: Session, chosen: Sequence[Candidate], quiet: float, round_: Round | None) -> int:
        """Delete events with their deliveries, attempts, answers, guards' answers and bytes; returns how many.

        Identities, guards and effects stay, the effects without arguments and errors. An event stays if it changed
        since it was chosen, if another transaction has it locked, if one of its effects is not finished, or if it was
        redelivered within the last `quiet` seconds, or if its answer has not expired. An event and its stages go
        together, or stay.
        """
        rows = await db("lock_events_to_prune", chosen=_claims(chosen), quiet=quiet)
        over = await _over(db, [row["id"] for row in rows])
        going = await _whole(db, [row for row in rows if row["id"] in over])
        if going and round_ is not None:
            await _take(db, going, [identity for row in going for identity in over[row["id"]]], quiet)
            await _record(db, round_, Pruned(events=len(going)))
        return len(going)

    @writes_lightly
    async def empty(self, db: Session, chosen: Sequence[Candidate], older: float, round_: Round | None) -> int:
        """Delete bytes, headers and query of requests; returns how many events lost theirs.

        A request is emptied when all its events, with their stages, have been final for `older` seconds and it has no
        quarantined delivery.
        """
        rows = await db("lock_events_to_empty", events=[one.id for one in chosen], older=older)
        events = [row["id"] for row in rows]
        stages = await db("lock_stages_to_empty", events=events, older=older) if events else []
        left = await _stages_of(db, events)
        left.subtract(row["parent"] for row in stages if row["over"])
        over = Counter(row["request_id"] for row in rows if row["over"] and not left[row["id"]])
        items = await db("count_items", requests=sorted(over))
        good = {
            row["request_id"] for row in items if row["made"] == over[row["request_id"]] and not row["quarantined"]
        }
        emptied = [row["id"] for row in rows if row["request_id"] in good]
        emptied += [row["id"] for row in stages if row["parent"] in set(emptied)]
        if emptied and round_ is not None:
            await db("empty_requests", requests=sorted(good), empty=b"")
            await db("empty_events", events=emptied)
            await _record(db, round_, Pruned(payloads=len(emptied)))
        return len(emptied)

    @writes_lightly
    async def forget(self, db: Session, chosen: Sequence[Candidate], round_: Round | None) -> int:
        """Delete tracebacks of attempts, and of calls of finished effects; returns for how many events."""
        claims = _claims(chosen)
        if round_ is None:
            return len(await db("remembered", chosen=claims))
        changed = {row["event_id"] for row in await db("forget_attempts", chosen=claims)}
        events = {row["identity"]: row["event_id"] for row in await db("effects_over", chosen=claims)}
        changed.update(events[row["identity"]] for row in await db("trim_calls", identities=list(events)))
        if changed:
            await _record(db, round_, Pruned(history=len(changed)))
        return len(changed)

    @writes_lightly
    async def drop(
        self, db: Session, duplicates: Sequence[Arrived], quarantined: Sequence[Arrived], round_: Round | None
    ) -> int:
        """Delete rows of duplicates, and quarantined deliveries whose event is gone, unless an operator accepted
        them; returns how many were deleted."""
        await db("lock_deliveries", places=_places(quarantined))
        orphans = [(row["request_id"], row["item"]) for row in await db("orphans", places=_places(quarantined))]
        if round_ is None:
            return len(duplicates) + len(orphans)
        gone = await db("prune_deliveries", places=_places(duplicates), outcomes=[DeliveryOutcome.DUPLICATE])
        gone += await db("prune_deliveries", places=orphans, outcomes=QUARANTINED)
        await db("prune_requests", requests=sorted({row["request_id"] for row in gone}))
        if gone:
            await _record(db, round_, Pruned(deliveries=len(gone)))
        return len(gone)

    # ── evidence ──

    @reads
    async def pruned(self, db: Session, first: UUID, last: UUID) -> list[Tombstone]:
        """Events that were pruned, with ids from one to another; at most ten."""
        return [value_of(Tombstone, row) for row in await db("pruned_events", first=first, last=last)]


async def _record(db: Session, round_: Round, step: Pruned) -> None:
    """Update the audit log entry, in the transaction that deletes something."""
    if not await db("hold_turn", holder=round_.name, lease=round_.lease):
        raise WrongState(
            f"another took the turn of {round_.holder} to prune: what it had not begun is left to that one"
        )
    words = round_.words_with(step)
    await db("record_pruning", id=round_.id, actor=round_.actor, reason=round_.reason, subject=words)


async def _over(db: Session, idents: list[UUID]) -> dict[UUID, list[bytes]]:
    """Return the events whose effects are all finished and not locked by others, with those effects."""
    over: dict[UUID, list[bytes]] = {ident: [] for ident in idents}
    for row in await db("lock_effects_to_prune", events=idents):
        if row["over"]:
            over[row["event_id"]].append(row["identity"])
    for row in await db("count_effects", events=idents):
        if len(over[row["event_id"]]) != row["n"]:
            del over[row["event_id"]]
    return over


async def _whole(db: Session, rows: Sequence[Row]) -> list[Row]:
    """Return the events whose stages are all among the rows, and these stages."""
    found = Counter(row["parent"] for row in rows if row["parent"] is not None)
    events = [row["id"] for row in rows if row["parent"] is None]
    there = await _stages_of(db, events)
    whole = {ident for ident in events if there[ident] == found[ident]}
    return [row for row in rows if (row["parent"] or row["id"]) in whole]


async def _stages_of(db: Session, events: list[UUID]) -> Counter[UUID]:
    """Return how many stages each event has."""
    return Counter({row["parent"]: row["n"] for row in await db("count_stages", events=events)})


async def _take(db: Session, going: Sequence[Row], effects: list[bytes], quiet: float) -> None:
    idents = [row["id"] for row in going]
    await db("lock_quarantined_to_prune", events=idents)
    await db("record_pruned", events=idents)
    await db("prune_attempts", events=idents)
    await db("prune_answers", events=idents)
    await db("delete_answers", events=idents)
    await db("prune_events", events=idents)
    left = await db("prune_later_deliveries", events=idents, quiet=quiet)
    left += await db("prune_first_deliveries", named=[(row["request_id"], row["item"]) for row in going])
    await db("prune_requests", requests=sorted({row["request_id"] for row in left}))
    if effects:
        await db("trim_effects", identities=effects, empty=b"")
        await db("trim_calls", identities=effects)


def _entry_of(holder: str) -> UUID | None:
    """Return the id of the audit log entry in a holder's name; earlier releases had none before the end."""
    try:
        return UUID(holder.rpartition(" ")[2])
    except ValueError:
        return None


def _claims(chosen: Sequence[Candidate]) -> list[tuple[UUID, int]]:
    return [(one.id, one.claim) for one in chosen]


def _places(arrived: Sequence[Arrived]) -> list[tuple[UUID, int]]:
    return [(one.request_id, one.item) for one in arrived]


def _arrived(row: Row) -> Arrived:
    outcome = row["outcome"]
    return value_of(Arrived, row, first=outcome in NEW, duplicate=outcome == DeliveryOutcome.DUPLICATE)
