"""The store on SQLite: one file, one writing thread per process, one writer at a time among all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw
import msgspec

from ...clock import Clock
from ...errors import ConfigError, StoreError, Unavailable
from ...filters import EVERYTHING, Filter
from ...identities import body_identity, id_bounds, key_identity
from ...ledger import Effect
from ...model import (
    Arrival,
    Claimed,
    EventRow,
    Expired,
    Health,
    History,
    Kind,
    Outcome,
    Recorded,
    Rescue,
    Waiting,
    WorkerInfo,
)
from ...states import State
from .. import SCHEMA_RANGE, out_of_range
from ..ops.cases import Cases
from ..ops.circuits import Circuits
from ..ops.consistency import Books
from ..ops.decisions import Decisions
from ..ops.erasure import Erasure
from ..ops.jobs import Jobs
from ..ops.pauses import Pauses
from ..ops.pruning import Pruning
from ..ops.published import PublishedKeys
from ..ops.reconciling import Reconciling
from ..ops.restores import Restores
from ..protocol import Adapter, Transactions
from ..queries import load, migrations
from ..rows import Rows, outcome_values
from ..search import Searching
from . import intake, second_library
from .connection import Checkpointer, Row, Writer, check_version, in_transaction, rows, sha256_of, translate
from .files import Connection
from .intake import micros
from .ledger import SqliteLedger
from .pulse import SqlitePulse
from .scribe import Scribe
from .search import SqliteAsks, looking
from .session import SqliteDatabase
from .sets import SqliteSets
from .transaction import SqliteTransaction
from .watch import LockWatch

T = TypeVar("T")
_QUERIES = load(__package__)
NO_ADAPTERS = (
    "transactions=… needs PostgreSQL: SQLite's own library in the ORM would be a second SQLite on one file, and its "
    "write lock would stall every ack. Write with event.tx, which is SQLite's transaction here, or use PostgreSQL"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILTERS = load(__package__, "filters.sql")
_TRIED = {
    "complete": "processed",
    "skip": "skipped",
    "wait": "waiting",
    "reschedule": "retrying",
    "fail": "failed",
    "review": "needs_review",
}


def _ident(value: bytes) -> UUID:
    return UUID(bytes=value)


def _time(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


class SqliteStore:
    """`wait`: how long to queue for the write lock; `limit`: how long a handler may hold it."""

    queues = True  # one writer, and a line before it

    def __init__(self, path: Path, *, clock: Clock | None = None, wait: float = 5.0, limit: float = 1.0) -> None:
        check_version()
        self._path = path = path.absolute()  # the process may change its folder
        self._clock = clock or Clock()
        self._wait = wait
        self._limit = limit
        self._rows = Rows(_time, _ident)
        self._turn = asyncio.Lock()
        self._watch = LockWatch.from_environment()
        self.ledger = SqliteLedger(self._do, self._write, self._now, self._rows)
        self.search = Searching(
            SqliteAsks(path, self._now),
            _FILTERS,
            "?",
            moment=lambda moment: (moment - _EPOCH) // timedelta(microseconds=1),
            ident=lambda ident: ident.bytes,
            rows=self._rows,
            offset=lambda: self._clock.offset,
        )
        self.trouble = looking(path, self._now, self._rows)
        database = SqliteDatabase(path, self._do, self._write, self._now)
        self._decisions = Decisions(database)
        sets = SqliteSets(path, self.search.condition, database, self._write, self._now)
        self.jobs = Jobs(database, sets, self.ledger)
        self.cases = Cases(database)
        self.circuits = Circuits(database)
        self.books = Books(database)
        self.erasure = Erasure(database)
        self.pauses = Pauses(database)
        self.pruning = Pruning(database)
        self.published = PublishedKeys(database)
        self.reconciling = Reconciling(database)
        self.restores = Restores(database, self.ledger)
        self._writer: Writer | None = None
        self._checkpointer: Checkpointer | None = None
        self._scribe: Scribe | None = None

    # ── life ──

    def _now(self) -> int:
        return micros(self._clock.time())

    def sql(self, name: str) -> str:
        return _QUERIES[name]

    async def open(self, *, handlers: int = 0, apart: bool = False) -> None:
        if not self._path.parent.is_dir():
            raise Unavailable(f"SQLite: the folder {self._path.parent} does not exist")
        self._runs_handlers = handlers > 0  # one writer at a time, however many they are
        if self._runs_handlers:
            second_library.watch(self._path)
        self._writer = Writer(self._path, wait=self._wait, limit=self._limit, watch=self._watch)
        self._writer.start()
        self._checkpointer = Checkpointer(self._path)
        self._checkpointer.start()
        if apart:
            self._scribe = Scribe(self._path, lambda: self._do(lambda c: c.files), wait=self._wait)

    async def close(self) -> None:
        if self._runs_handlers:
            second_library.unwatch(self._path)
            self._runs_handlers = False
        if self._scribe is not None:
            await self._scribe.close()
            self._scribe = None
        for thread in (self._checkpointer, self._writer):
            if thread is not None:
                thread.stop()
                await asyncio.to_thread(thread.join)
        self._writer = self._checkpointer = None

    async def _do(self, job: Callable[[Connection], T]) -> T:
        """Run `job` on the writing connection when no handler's transaction is open on it."""
        assert self._writer is not None, "the store is not open"
        async with self._turn:
            try:
                return await self._writer.run_job(job)
            except (apsw.Error, OverflowError, ValueError) as error:
                raise translate(error) from error

    async def _write(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run `job` in one durable transaction."""
        return await self._do(lambda connection: in_transaction(connection, job, self._watch))

    async def _read(self, name: str, *args: Any) -> list[Row]:
        return await self._do(lambda connection: rows(connection, self.sql(name), args))

    def migrations(self) -> list[tuple[str, str]]:
        start = ("0000_schema", self.sql("create_schema") + ";")
        return [start, *((f"{v:04}_{name}", text) for v, name, text in migrations(__package__))]

    async def migrate(self) -> list[str]:
        def job(connection: apsw.Connection) -> list[str]:
            applied = []
            connection.create_scalar_function("sha256", sha256_of, deterministic=True)
            connection.execute(self.sql("create_schema"))
            (current,) = rows(connection, self.sql("applied"))[0]
            for version, name, text in migrations(__package__):
                if version > current:
                    connection.execute(text)
                    connection.execute(self.sql("note_migration"), (self._now(), version, name))
                    applied.append(f"{version:04}_{name}")
            return applied

        assert self._writer is not None, "the store is not open"
        self._writer.may_create = True
        return await self._write(job)

    async def health(self) -> Health:
        def job(connection: apsw.Connection) -> int:
            if not rows(connection, self.sql("has_schema"))[0][0]:
                return 0
            schema: int = rows(connection, self.sql("applied"))[0][0]
            if SCHEMA_RANGE[0] <= schema <= SCHEMA_RANGE[1]:
                connection.execute(self.sql("probe"), (self._now(),))
            return schema

        low, high = SCHEMA_RANGE
        try:
            opened = self._writer is not None and self._writer.opened
            schema = await self._write(job) if opened or self._path.exists() else 0
            if self._scribe is not None and schema:
                await self._scribe.record(self._now(), [])
        except (Unavailable, StoreError) as error:
            return Health(False, 0, 0.0, str(error))
        if low <= schema <= high:
            return Health(True, schema, 0.0)
        return Health(False, schema, 0.0, out_of_range(schema))

    # ── intake ──

    async def know_sources(self, names: Sequence[str]) -> None:
        await self._write(lambda c: c.executemany(self.sql("know_sources"), [(name,) for name in names]))

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        return [None] * len(arrivals)  # no round trips to save

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        if self._scribe is not None:
            return await self._scribe.record(self._now(), arrivals)
        return await self._write(lambda c: intake.record(c, self.sql, self._now(), arrivals))

    # ── work ──

    async def waiting(self) -> list[Waiting]:
        found = await self._read("waiting", self._now())
        return [Waiting(Kind(row["source"], row["type"]), row["due_in"] / 1e6, bool(row["alone"])) for row in found]

    async def claim(self, worker: str, kinds: Sequence[Kind], limit: int, lease: float) -> list[Claimed]:
        return await self._claim("due", worker, kinds, limit, lease)

    async def claim_alone(self, worker: str, kinds: Sequence[Kind], lease: float) -> list[Claimed]:
        return await self._claim("due_alone", worker, kinds, 1, lease)

    async def _claim(self, due: str, worker: str, kinds: Sequence[Kind], limit: int, lease: float) -> list[Claimed]:
        def job(connection: apsw.Connection) -> list[Claimed]:
            now = self._now()
            found_due = [
                (row[1], row[0])
                for kind in kinds
                if rows(connection, self.sql("open"), (kind.source, kind.type))
                for row in connection.execute(self.sql(due), (now, kind.source, kind.type, limit))
            ]
            idents = [ident for _, ident in sorted(found_due)[:limit]]
            for ident in idents:
                connection.execute(self.sql("claim"), (now, ident, worker, micros(lease)))
            found = (rows(connection, self.sql("claimed"), (ident,)) for ident in idents)
            return [self._rows.claimed(row) for [row] in found]

        return await self._write(job)

    def transaction(self, adapter: Adapter | None = None) -> SqliteTransaction:
        if adapter is not None:
            raise ConfigError(NO_ADAPTERS)
        assert self._writer is not None, "the store is not open"
        return SqliteTransaction(
            self._writer, self._turn, lambda c, outcomes: len(self._settle(c, outcomes)), self.sql, self._now
        )

    async def check(self, transactions: Transactions) -> None:
        raise ConfigError(NO_ADAPTERS)

    async def settle(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        return await self._write(lambda connection: self._settle(connection, outcomes))

    def _settle(self, connection: apsw.Connection, outcomes: Sequence[Outcome]) -> set[UUID]:
        now, settled = self._now(), set()
        for outcome in outcomes:
            ident, claim, transition, state, reason, due_in, *rest = outcome_values(outcome)
            values = (now, ident.bytes, claim, transition, state, reason, micros(due_in), *rest)
            for row in connection.execute(self.sql("settle"), values).fetchall():
                settled.add(outcome.id)
                if transition in _TRIED:
                    connection.execute(self.sql("tried"), (*row, now, _TRIED[transition]))
        return settled

    async def held(self, worker: str) -> list[tuple[UUID, int]]:
        return [(_ident(row["id"]), row["claim"]) for row in await self._read("held", worker)]

    async def pulse(self, worker: str, handles: Sequence[tuple[str, str]], patience: float) -> SqlitePulse:
        who = (worker, msgspec.json.encode(handles).decode())
        return SqlitePulse(self._path, self.sql, self._now, who, min(patience, self._wait), self._watch)

    async def renew(self, event_id: UUID, claim: int, lease: float) -> bool:
        args = (self._now(), event_id.bytes, claim, micros(lease))
        return bool(await self._write(lambda c: rows(c, self.sql("beat"), args)))

    async def expired(self, limit: int) -> list[Expired]:
        found = await self._read("expired", self._now(), limit)
        return [Expired(_ident(row[0]), *row[1:]) for row in found]

    async def rescue(self, rescues: Sequence[Rescue]) -> int:
        def job(connection: apsw.Connection) -> int:
            now, rescued = self._now(), 0
            for r in rescues:
                due_in = None if r.due_in is None else micros(r.due_in)
                values = (now, r.id.bytes, r.claim, due_in, r.reason)
                for row in connection.execute(self.sql("rescue"), values).fetchall():
                    connection.execute(self.sql("tried"), (*row, now, "crashed"))
                    rescued += 1
            return rescued

        return await self._write(job)

    async def skip_unhandled(self, kind: Kind, older_than: float, limit: int) -> int:
        args = (self._now(), kind.source, kind.type, micros(older_than), limit)
        return len(await self._write(lambda c: rows(c, self.sql("skip_unhandled"), args)))

    async def register(self, worker: str, handles: Sequence[tuple[str, str]]) -> None:
        args = (self._now(), worker, msgspec.json.encode(handles).decode())
        await self._write(lambda c: rows(c, self.sql("register"), args))

    async def workers(self) -> list[WorkerInfo]:
        return [self._rows.worker(row) for row in await self._read("workers", self._now())]

    async def leave(self, worker: str) -> None:
        await self._write(lambda c: rows(c, self.sql("leave"), (self._now(), worker)))

    async def forget_workers(self, unseen_for: float) -> None:
        args = (self._now(), micros(unseen_for))
        await self._write(lambda c: rows(c, self.sql("forget_workers"), args))

    # ── operate ──

    async def retry(
        self, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int | None = None
    ) -> None:
        await self._decisions.decide("retry", event_id, expected, seen, actor, reason)

    async def replay(
        self,
        event_id: UUID,
        expected: State,
        actor: str,
        reason: str,
        *,
        seen: int | None = None,
        repeat: Sequence[Effect] = (),
    ) -> int:
        return await self._decisions.replay(event_id, expected, seen, repeat, actor, reason)

    async def discard(
        self, event_id: UUID, expected: State, actor: str, reason: str, *, seen: int | None = None
    ) -> None:
        await self._decisions.decide("discard", event_id, expected, seen, actor, reason)

    async def find(self, reference: str) -> list[UUID]:
        bounds = id_bounds(reference)
        found = await self._read("find_id", bounds[0].bytes, bounds[1].bytes) if bounds else []
        if not found:
            for (source,) in await self._read("sources"):
                found += await self._read("find_key", key_identity(source, reference.encode()))
        if not found and "~" in reference:
            found = await self._read("find_admitted", reference)
        return [_ident(row[0]) for row in found[:10]]

    async def history(self, event_id: UUID) -> History | None:
        found = await self._read("event", event_id.bytes)
        if not found:
            return None
        event = self._rows.event(found[0])
        requests = await self._read("request", event.request_id.bytes)
        deliveries = await self._read("deliveries", event_id.bytes, event.request_id.bytes, event.item)
        bodies = await self._read("owner", body_identity(event.source, found[0]["fingerprint"]))
        return History(
            event,
            self._rows.request(requests[0]) if requests else None,
            tuple(map(self._rows.delivery, deliveries)),
            tuple(map(self._rows.attempt, await self._read("attempts", event_id.bytes))),
            await self.ledger.of_event(event_id),
            tuple(map(self._rows.action, await self._read("actions", event_id.bytes))),
            self._rows.body_of(event, bodies),
        )

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        return await self.search.events(where, before=before, limit=limit)

    async def count(self, where: Filter) -> int:
        return await self.search.count(where)

    async def counts(self) -> dict[State, int]:
        return {State(row["state"]): row["n"] for row in await self._read("counts")}

    async def delivery_counts(self) -> dict[str, int]:
        return {row["outcome"]: row["n"] for row in await self._read("delivery_counts")}
