"""The store on SQLite: one file, one writing thread per process, one writer at a time among all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw

from ...clock import Clock
from ...errors import ConfigError, SchemaMismatch, StoreError, Unavailable
from ...model import Arrival, Claimed, Handled, Kind, Outcome, Recorded, Share, Waiting
from ...states import BY_NAME, DeliveryOutcome
from .. import BEFORE_FIRST, fits, is_newer, out_of_range
from ..first_claim import first_claim, may_begin
from ..history import Health
from ..ops.answers import Claim, answers_of, claims, met, states
from ..ops.copy import Copies
from ..protocol import Adapter, Store, Transactions
from ..rows import outcome_values, stage_values, value_of
from ..text import migrations
from . import intake, second_library
from .connection import (
    EPOCH,
    Checkpointer,
    Row,
    Writer,
    check_version,
    converted,
    in_transaction,
    read_rows,
    rows,
    translate,
)
from .files import Connection
from .heartbeat import SqliteHeartbeat
from .intake import micros
from .jobs import SqliteJobs
from .ledger import SqliteLedger
from .session import SqliteDatabase, SqliteSession, queries, query
from .tables import SqliteTables
from .transaction import SqliteTransaction
from .turn import Turn
from .watch import LockWatch
from .writer_client import WriterClient

T = TypeVar("T")
NO_ADAPTERS = (
    "transactions=… needs PostgreSQL: SQLite's own library in the ORM would be a second SQLite on one file, and its "
    "write lock would stall every ack. Write with event.tx, which is SQLite's transaction here, or use PostgreSQL"
)


class SqliteStore(Store):
    """`wait`: how long to queue for the write lock; `limit`: how long a handler may hold it."""

    queues = True  # one writer, and a line before it

    def __init__(self, path: Path, *, clock: Clock | None = None, wait: float = 5.0, limit: float = 1.0) -> None:
        check_version()
        self._path = path = path.absolute()  # the process may change its folder
        self._clock = clock or Clock()
        self._wait = wait
        self._limit = limit
        self._turn = Turn()
        self._watch = LockWatch.from_environment()
        database = SqliteDatabase(path, self._do, self._write, self._now)
        effects = SqliteLedger(database, self._now)
        super().__init__(database, self._clock, effects, SqliteJobs(database, effects), database)
        self.copies: Copies = Copies(database, SqliteTables())
        self._writer: Writer | None = None
        self._checkpointer: Checkpointer | None = None
        self._writer_client: WriterClient | None = None

    # ── life ──

    def _now(self) -> int:
        return micros(self._clock.time())

    def sql(self, name: str) -> str:
        return queries()[name]

    async def open(self, *, handlers: int = 0, writer_process: bool = False) -> None:
        if not self._path.parent.is_dir():
            raise Unavailable(f"SQLite: the folder {self._path.parent} does not exist")
        self._runs_handlers = handlers > 0  # one writer at a time, however many they are
        if self._runs_handlers:
            second_library.watch(self._path)
        self._writer = Writer(self._path, wait=self._wait, limit=self._limit, watch=self._watch)
        self._writer.start()
        self._checkpointer = Checkpointer(self._path)
        self._checkpointer.start()
        if writer_process:
            self._writer_client = WriterClient(self._path, lambda: self._do(lambda c: c.files), wait=self._wait)

    async def close(self) -> None:
        if self._runs_handlers:
            second_library.unwatch(self._path)
            self._runs_handlers = False
        if self._writer_client is not None:
            await self._writer_client.close()
            self._writer_client = None
        for thread in (self._checkpointer, self._writer):
            if thread is not None:
                thread.stop()
                await asyncio.to_thread(thread.join)
        self._writer = self._checkpointer = None

    async def _do(self, job: Callable[[Connection], T], *, queued: bool = False) -> T:
        """Run `job` on the writing connection when no handler's transaction is open on it."""
        assert self._writer is not None, "the store is not open"
        await self._turn.take(queued=queued)
        try:
            return await self._writer.run_job(job)
        except (apsw.Error, OverflowError, ValueError) as error:
            raise translate(error) from error
        finally:
            self._turn.release()

    async def _write(self, job: Callable[[apsw.Connection], T], *, queued: bool = False) -> T:
        """Run `job` in one durable transaction."""
        return await self._do(lambda connection: in_transaction(connection, job, self._watch), queued=queued)

    async def _read(self, name: str, *args: Any) -> list[Row]:
        return await self._do(lambda connection: rows(connection, self.sql(name), args))

    def migrations(self) -> list[tuple[str, str]]:
        start = ("0000_schema", self.sql("create_schema") + ";")
        return [start, *((f"{v:04}_{name}", text) for v, name, text in migrations(__package__))]

    async def migrate(self) -> list[str]:
        def job(connection: apsw.Connection) -> list[str]:
            applied = []
            connection.execute(self.sql("create_schema"))
            (current,) = rows(connection, self.sql("applied"))[0]
            if current == BEFORE_FIRST:
                raise SchemaMismatch(out_of_range(current))
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
        schema, oldest = 0, None

        def job(connection: apsw.Connection) -> None:
            nonlocal schema, oldest
            if rows(connection, self.sql("has_schema"))[0][0]:
                schema = rows(connection, self.sql("applied"))[0][0]
            if is_newer(schema):
                oldest = connection.execute(query("oldest_supported")).get
            if fits(schema, oldest):
                connection.execute(self.sql("probe"), (self._now(),))

        try:
            if (self._writer is not None and self._writer.opened) or self._path.exists():
                await self._write(job)
            if self._writer_client is not None and schema:
                await self._writer_client.record(self._now(), [])
        except (Unavailable, StoreError) as error:
            return Health(False, schema, 0.0, str(error))
        if fits(schema, oldest):
            return Health(True, schema, 0.0)
        return Health(False, schema, 0.0, out_of_range(schema))

    # ── intake ──

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        return [None] * len(arrivals)  # no round trips to save

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        if self._writer_client is not None:
            return await self._writer_client.record(self._now(), arrivals)
        return await self._write(lambda c: intake.record(c, self.sql, self._now(), arrivals))

    async def claim_new(self, arrivals: Sequence[Arrival], worker: str, lease: float) -> Sequence[Claim | None]:
        return [None] * len(arrivals)

    async def record_claimed(self, arrivals: Sequence[Arrival], worker: str, lease: float) -> list[Claim]:
        def job(connection: apsw.Connection) -> list[Claim]:
            now = self._now()
            recorded = [one for [one] in intake.record(connection, self.sql, now, arrivals)]
            new = [a for a, one in zip(arrivals, recorded, strict=True) if one.outcome is DeliveryOutcome.ACCEPTED]
            claimed = {one.id: one for one in self._claim_new(connection, now, new, worker, lease)}
            found = SqliteSession(connection, now).cursor(query("answer_states"), {"events": met(recorded, claimed)})
            return claims(recorded, claimed, states(converted(found)))

        return await self._write(job)

    # ── work ──

    async def waiting(self) -> list[Waiting]:
        found = await self._read("waiting", self._now())
        return [
            Waiting(value_of(Kind, row), row["due_in"] / 1e6, bool(row["alone"]), bool(row["unplaced"]))
            for row in found
        ]

    async def claim_shares(self, worker: str, shares: Sequence[Share], lease: float) -> list[Claimed]:
        return await self._claim("due", worker, shares, lease)

    async def claim_alone(self, worker: str, kinds: Sequence[Kind], lease: float) -> list[Claimed]:
        return await self._claim("due_alone", worker, [Share(tuple(kinds), 1)], lease)

    async def claim_seen(
        self, event_id: UUID, seen: int, worker: str, lease: float, *, crashed: bool = False
    ) -> Claimed | None:
        return await self._write(
            lambda c: self._claim_seen(c, self._now(), event_id, seen, worker, lease, crashed=crashed)
        )

    def _claim_new(
        self, connection: apsw.Connection, now: int, arrivals: Sequence[Arrival], worker: str, lease: float
    ) -> Iterator[Claimed]:
        """Claim the events that these arrivals have brought, without those that are ordered or paused."""
        paused: dict[Kind, bool] = {}
        for arrival in filter(may_begin, arrivals):
            [item], [event_id] = arrival.items, arrival.event_ids
            kind = Kind(arrival.source, item.type)
            if kind not in paused:
                asked = {"source": kind.source, "type": kind.type}
                paused[kind] = not connection.execute(query("may_run"), asked).get
            if not paused[kind]:
                connection.execute(self.sql("claim"), (now, event_id.bytes, worker, micros(lease)))
                yield first_claim(arrival, EPOCH + timedelta(microseconds=now))

    def _claim_seen(
        self,
        connection: apsw.Connection,
        now: int,
        event_id: UUID,
        seen: int,
        worker: str,
        lease: float,
        *,
        crashed: bool = False,
    ) -> Claimed | None:
        asked = {"event_id": event_id.bytes, "seen": seen, "crashed": crashed}
        if not connection.execute(query("may_be_claimed"), asked).get:
            return None
        connection.execute(self.sql("claim"), (now, event_id.bytes, worker, micros(lease)))
        [row] = read_rows(connection, self.sql("claimed"), (event_id.bytes,))
        return value_of(Claimed, row)

    async def _claim(self, due: str, worker: str, shares: Sequence[Share], lease: float) -> list[Claimed]:
        def longest_due(connection: apsw.Connection, share: Share, now: int) -> list[tuple[int, bytes]]:
            found = [
                (row[1], row[0])
                for kind in share.kinds
                if connection.execute(query("may_run"), {"source": kind.source, "type": kind.type}).get
                for row in connection.execute(self.sql(due), (now, kind.source, kind.type, kind.version, share.limit))
            ]
            return sorted(found)[: share.limit]

        def job(connection: apsw.Connection) -> list[Claimed]:
            now = self._now()
            chosen = sorted(one for share in shares for one in longest_due(connection, share, now))
            for _, ident in chosen:
                connection.execute(self.sql("claim"), (now, ident, worker, micros(lease)))
            found = (read_rows(connection, self.sql("claimed"), (ident,)) for _, ident in chosen)
            return [value_of(Claimed, row) for [row] in found]

        return await self._write(job)

    def transaction(self, adapter: Adapter | None = None) -> SqliteTransaction:
        if adapter is not None:
            raise ConfigError(NO_ADAPTERS)
        assert self._writer is not None, "the store is not open"

        def settle(connection: apsw.Connection, outcomes: Sequence[Outcome]) -> int:
            return len(self._settle(connection, outcomes))

        return SqliteTransaction(self._writer, self._turn, settle, self.sql, self._now)

    async def check(self, transactions: Transactions) -> None:
        raise ConfigError(NO_ADAPTERS)

    async def settle(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        return await self._write(lambda connection: self._settle(connection, outcomes), queued=True)

    def _settle(self, connection: apsw.Connection, outcomes: Sequence[Outcome]) -> set[UUID]:
        now, settled = self._now(), set()
        for outcome in outcomes:
            ident, claim, transition, state, reason, due_in, *rest, traceparent = outcome_values(outcome)
            values = (now, ident.bytes, claim, transition, state, reason, micros(due_in), *rest)
            for row in connection.execute(self.sql("settle"), values).fetchall():
                settled.add(outcome.id)
                attempt = BY_NAME[transition].attempt
                if attempt is not None:
                    connection.execute(self.sql("tried"), (*row, now, attempt.value, traceparent))
        if stages := stage_values(outcome for outcome in outcomes if outcome.id in settled):
            SqliteSession(connection, now).cursor(query("begin_stages"), {"stages": stages})
        for answer in answers_of(outcome for outcome in outcomes if outcome.id in settled):
            SqliteSession(connection, now).cursor(query("keep_answer"), answer)
        return settled

    async def heartbeat(self, worker: str, handles: Handled | None, patience: float) -> SqliteHeartbeat:
        return SqliteHeartbeat(
            self._path, self.sql, self._now, (worker, handles), min(patience, self._wait), self._watch
        )

    async def renew(self, event_id: UUID, claim: int, lease: float) -> bool:
        args = (self._now(), event_id.bytes, claim, micros(lease))
        return bool(await self._write(lambda c: rows(c, self.sql("beat"), args)))
