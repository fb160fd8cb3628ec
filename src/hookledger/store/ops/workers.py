"""Workers: which are alive, what they hold, and reclaiming events of dead ones."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from ...model import ANY_VERSION, Handled, Kind, Pattern
from ..rows import value_of
from ..session import Operations, Row, Session, reads, writes

GUARD = "guard/"
"""What begins the name under which a guard registers its routes; in `worker_unseen_for`, too. No host has a slash."""


class Expired(Struct, frozen=True):
    """An event whose lease expired."""

    id: UUID
    claim: int
    source: str
    type: str
    attempts: int
    crashes: int
    run_age: float
    worker: str | None
    version: str = ""

    @property
    def kind(self) -> Kind:
        return Kind(self.source, self.type, self.version)


class Reclaim(Struct, frozen=True):
    """What to do with an expired event: retry it after a backoff, or make it a dead letter."""

    id: UUID
    claim: int
    due_in: float | None
    """None: the budget is exhausted."""
    reason: str


class WorkerInfo(Struct, frozen=True):
    """A worker as the database shows it, or an application that guards routes."""

    id: str
    handles: tuple[Pattern, ...]
    """What each of its handlers processes."""
    seen_ago: float
    left: bool = False
    """Whether it recorded that it stopped."""

    def alive(self, lease: float) -> bool:
        """Whether its last heartbeat is within a lease and it has not stopped since."""
        return not self.left and self.seen_ago <= lease

    def works(self, lease: float) -> bool:
        """Whether it is alive and processes what is due. A guard runs only what is asked for: it is no worker."""
        return self.alive(lease) and not self.id.startswith(GUARD)


class Workers(Operations):
    """Part of the store itself."""

    @writes
    async def know_sources(self, db: Session, names: Sequence[str]) -> None:
        """Remember the sources that a receiver serves, so that keys can be looked for in each."""
        await db("know_sources", names=[(name,) for name in sorted(names)])

    @writes
    async def register(self, db: Session, worker: str, handles: Handled) -> None:
        """Make a worker and what it handles known to the others."""
        await register(db, worker, handles)

    @reads
    async def workers(self, db: Session) -> list[WorkerInfo]:
        """Every worker seen, living or not."""
        return [_worker(row) for row in await db("workers")]

    @writes
    async def leave(self, db: Session, worker: str) -> None:
        """The worker has stopped. What it handled stays known, as for one that died."""
        await db("leave", worker=worker)

    @writes
    async def forget_workers(self, db: Session, unseen_for: float) -> None:
        """Drop workers that were not seen for so many seconds."""
        await db("forget_workers", unseen_for=unseen_for)

    @reads
    async def held(self, db: Session, worker: str) -> list[tuple[UUID, int]]:
        """Id and claim of every event that this worker holds, whether it knows or not."""
        return [(row["id"], row["claim"]) for row in await db("held", worker=worker)]

    @reads
    async def expired(self, db: Session, limit: int) -> list[Expired]:
        """Return events whose lease has expired."""
        return [value_of(Expired, row) for row in await db("expired", limit=limit)]

    @writes
    async def reclaim(self, db: Session, reclaims: Sequence[Reclaim]) -> int:
        """processing → retrying or failed, with a new fence; returns how many were still expired."""
        given = [(r.id, r.claim, r.due_in, r.reason) for r in sorted(reclaims, key=lambda one: one.id)]
        fields = ("id", "claim", "run", "worker", "claimed_at", "error")
        ended = [tuple(row[name] for name in fields) for row in await db("reclaim", reclaims=given)]
        await db("add_crashed_attempts", attempts=ended)
        return len(ended)

    @writes
    async def skip_unhandled(self, db: Session, kind: Kind, older_than: float, limit: int) -> int:
        """pending → skipped, for events without a handler for so many seconds, unless their kind is paused."""
        of_type = {"source": kind.source, "type": kind.type}
        if not await db("may_run", **of_type):
            return 0
        given = {**of_type, "version": kind.version, "older_than": older_than, "limit": limit}
        found = [*await db("unhandled", **given), *await db("unhandled_alone", **given)]
        return len(await db("skip_unhandled", events=[row["id"] for row in found]))


async def register(db: Session, worker: str, handles: Handled | None) -> None:
    """Register a worker. Each heartbeat does it too: a worker that was silent for long may have been deleted."""
    if handles is None:  # what only answers is no worker: alerts about missing ones must not count it
        return
    given = [Pattern(*one) for one in handles]
    every = [(one.source, one.type) for one in given if one.version == ANY_VERSION]
    some = [one for one in given if one.version != ANY_VERSION]  # in another column: earlier releases read pairs
    await db("register", worker=worker, handles=_json(every), versions=_json(some))


def _json(patterns: Sequence[tuple[str, ...]]) -> str:
    return msgspec.json.encode(patterns).decode()


def _worker(row: Row) -> WorkerInfo:
    every = msgspec.json.decode(row["handles"], type=list[tuple[str, str]])
    some = msgspec.json.decode(row["versions"], type=list[tuple[str, str, str]])
    handles = tuple(Pattern(*one) for one in (*every, *some))
    return value_of(WorkerInfo, row, handles=handles, left=row["stopped_at"] is not None)
