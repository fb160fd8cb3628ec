"""The store on PostgreSQL, in a schema of its own inside the user's database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from operator import itemgetter
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from asyncpg.pool import Pool, PoolConnectionProxy

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
from ..rows import Rows, outcome_values, same
from ..search import Searching
from . import (
    intake,
    ledger,
    search,
    sets,
)
from .connection import OUTAGE, Connections, nothing
from .dialect import Dialect
from .intake import columns
from .ledger import PostgresLedger
from .pooled import PooledConnection
from .prove import prove
from .pulse import PostgresPulse
from .search import PostgresAsks
from .session import PostgresDatabase, Queries
from .sets import PostgresSets
from .transaction import LazyTransaction, PostgresTransaction

_QUERIES = load(__package__)


class PostgresStore:
    """`pooler=True` for a transaction pooler between us and the server: no statement outlives a transaction."""

    queues = False  # two transactions run side by side, on the processors that they share

    def __init__(
        self,
        url: str,
        *,
        schema: str = "hookledger",
        clock: Clock | None = None,
        pooler: bool = False,
        connections: int = 4,
        idle_limit: float = 60.0,
        timeout: float = 10.0,
    ) -> None:
        self._url = url
        self._schema = schema
        self._clock = clock or Clock()
        self._pooler = pooler
        self._connections = connections
        self._idle_limit = idle_limit
        self._timeout = timeout
        self.sql = Dialect(_QUERIES, schema, self._clock)
        """A named query for this schema and clock offset."""
        self._rows = Rows()
        self.search = Searching(
            PostgresAsks(Dialect(search.QUERIES, schema, self._clock), self._opened),
            {name: self.sql.render(text) for name, text in load(__package__, "filters.sql").items()},
            "$",
            moment=same,
            ident=same,
            rows=self._rows,
            offset=lambda: self._clock.offset,
        )
        self.trouble = search.looking(Dialect(search.TROUBLE, schema, self._clock), self._opened)
        self.ledger = PostgresLedger(
            Dialect(ledger.QUERIES, schema, self._clock), lambda: self._for_calls or self._opened()
        )
        queries = Queries(schema, self._clock, self.sql)
        database = PostgresDatabase(queries, self._opened)
        self._decisions = Decisions(database)
        how = (self.search.condition, queries, self._opened)
        self.jobs = Jobs(database, PostgresSets(Dialect(sets.QUERIES, schema, self._clock), *how), self.ledger)
        self.circuits = Circuits(PostgresDatabase(queries, lambda: self._for_calls or self._opened()))
        self.books = Books(database)
        self.cases = Cases(database)
        self.erasure = Erasure(database)
        self.pauses = Pauses(database)
        self.pruning = Pruning(database)
        self.published = PublishedKeys(database)
        self.reconciling = Reconciling(database)
        self.restores = Restores(database, self.ledger)
        self._general: Connections | None = None
        self._for_calls: Connections | None = None
        self._handlers: Pool[Any] | None = None

    # ── life ──

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"timeout": self._timeout, "command_timeout": self._timeout}
        if self._pooler:
            options |= {"statement_cache_size": 0}
        return options

    async def _connect(self, least: int, most: int) -> Connections:
        # Nothing is reset between uses: we change only transaction-local settings.
        pool = await asyncpg.create_pool(self._url, min_size=least, max_size=most, reset=nothing, **self._options())
        return Connections(pool, timeout=self._timeout, pooler=self._pooler)

    async def open(self, *, handlers: int = 0, apart: bool = False) -> None:
        del apart  # PostgreSQL's own processes write
        try:
            self._general = await self._connect(1, self._connections)
            if handlers:
                # Not the handlers' own: one that holds a connection and waits for its call would need a second.
                self._for_calls = await self._connect(0, min(handlers, 8))
                # A statement of a handler may take as long as the handler may.
                options = {**self._options(), "command_timeout": None}
                self._handlers = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=handlers, reset=nothing, **options
                )
        except OUTAGE as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}") from error
        except ValueError as error:  # its words may quote a password
            raise ConfigError("the database's URL cannot be read: postgresql://USER@HOST:PORT/NAME") from error

    async def close(self) -> None:
        handlers = self._handlers and Connections(self._handlers, timeout=self._timeout, pooler=self._pooler)
        for connections in (handlers, self._for_calls, self._general):
            if connections is not None:
                await connections.close()
        self._general = self._for_calls = self._handlers = None

    def _opened(self) -> Connections:
        assert self._general is not None, "the store is not open"
        return self._general

    def _use(self) -> AbstractAsyncContextManager[PoolConnectionProxy[Any]]:
        return self._opened().use()

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        async with self._use() as connection:
            return await connection.fetch(self.sql(name), *args)

    def migrations(self) -> list[tuple[str, str]]:
        start = ("0000_schema", self.sql("create_schema"))
        return [start, *((f"{v:04}_{name}", self.sql.render(text)) for v, name, text in migrations(__package__))]

    async def migrate(self) -> list[str]:
        applied = []
        async with self._use() as connection, connection.transaction():
            await connection.execute(self.sql("lock_migrations"), self._schema)
            await connection.execute(self.sql("create_schema"))
            current = await connection.fetchval(self.sql("applied"))
            for version, name, text in migrations(__package__):
                if version > current:
                    await connection.execute(self.sql.render(text))
                    await connection.execute(self.sql("note_migration"), version, name)
                    applied.append(f"{version:04}_{name}")
        return applied

    async def health(self) -> Health:
        schema = 0
        try:
            async with self._use() as connection:
                table = self.sql.render("{schema}.migrations")
                if await connection.fetchval(self.sql("has_schema"), table):
                    schema = await connection.fetchval(self.sql("applied"))
                low, high = SCHEMA_RANGE
                if not low <= schema <= high:
                    return Health(False, schema, 0.0, out_of_range(schema))
                before = time.time()
                there = await connection.fetchval(self.sql("probe"))
                skew = there - (before + time.time()) / 2
        except (Unavailable, StoreError) as error:
            return Health(False, schema, 0.0, str(error))
        return Health(True, schema, skew)

    # ── intake ──

    async def know_sources(self, names: Sequence[str]) -> None:
        await self._fetch("know_sources", sorted(names))

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        if self._pooler:  # one statement outside a transaction block is not safe behind a transaction pooler
            return [None] * len(arrivals)
        return await self._opened().insist(lambda c: intake.record_new(c, self.sql, arrivals))

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        return await self._opened().insist(lambda c: intake.record(c, self.sql, arrivals))

    # ── work ──

    async def waiting(self) -> list[Waiting]:
        rows = await self._fetch("waiting")
        return [Waiting(Kind(row["source"], row["type"]), row["due_in"], row["alone"]) for row in rows]

    async def claim(self, worker: str, kinds: Sequence[Kind], limit: int, lease: float) -> list[Claimed]:
        sources, types = [k.source for k in kinds], [k.type for k in kinds]
        rows = await self._fetch("claim", sources, types, limit, worker, lease)
        return [self._rows.claimed(row) for row in sorted(rows, key=lambda row: (row["due_at"], row["id"]))]

    async def claim_alone(self, worker: str, kinds: Sequence[Kind], lease: float) -> list[Claimed]:
        sources, types = [k.source for k in kinds], [k.type for k in kinds]
        rows = await self._fetch("claim_alone", sources, types, worker, lease)
        return [self._rows.claimed(row) for row in rows]

    def transaction(self, adapter: Adapter | None = None) -> PostgresTransaction:
        if adapter is not None:
            return PostgresTransaction(adapter, self.sql, self._idle_limit, self._fate)
        assert self._handlers is not None, "the store was opened without handlers"
        return LazyTransaction(PooledConnection(self._handlers), self.sql, self._idle_limit)

    async def _fate(self, xid: str) -> str | None:
        [(fate,)] = await self._fetch("fate", xid)
        return None if fate is None else str(fate)

    async def check(self, transactions: Transactions) -> None:
        async with self._use() as connection, connection.transaction():
            await prove(transactions, self.transaction, self.sql, connection)

    async def settle(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        if not outcomes:
            return set()
        # Sorted here as in `rescue`, `beat` and a handler's commit, so that they do not deadlock.
        values = sorted(map(outcome_values, outcomes), key=itemgetter(0))
        rows = await self._fetch("settle", *columns(values), None)
        return {row["id"] for row in rows}

    async def held(self, worker: str) -> list[tuple[UUID, int]]:
        return [(row["id"], row["claim"]) for row in await self._fetch("held", worker)]

    async def pulse(self, worker: str, handles: Sequence[tuple[str, str]], patience: float) -> PostgresPulse:
        who = (worker, msgspec.json.encode(handles).decode())
        return PostgresPulse(self._url, self._options(), self.sql, who, patience)

    async def renew(self, event_id: UUID, claim: int, lease: float) -> bool:
        return bool(await self._fetch("beat", [event_id], [claim], lease))

    async def expired(self, limit: int) -> list[Expired]:
        return [Expired(**row) for row in await self._fetch("expired", limit)]

    async def rescue(self, rescues: Sequence[Rescue]) -> int:
        rows = [(r.id, r.claim, r.due_in, r.reason) for r in sorted(rescues, key=lambda r: r.id)]
        return len(await self._fetch("rescue", *columns(rows))) if rows else 0

    async def skip_unhandled(self, kind: Kind, older_than: float, limit: int) -> int:
        return len(await self._fetch("skip_unhandled", kind.source, kind.type, older_than, limit))

    async def register(self, worker: str, handles: Sequence[tuple[str, str]]) -> None:
        await self._fetch("register", worker, msgspec.json.encode(handles).decode())

    async def workers(self) -> list[WorkerInfo]:
        return [self._rows.worker(row) for row in await self._fetch("workers")]

    async def leave(self, worker: str) -> None:
        await self._fetch("leave", worker)

    async def forget_workers(self, unseen_for: float) -> None:
        await self._fetch("forget_workers", unseen_for)

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
        rows = await self._fetch("find_id", *bounds) if bounds else []
        if not rows:
            sources = [row["name"] for row in await self._fetch("sources")]
            rows = await self._fetch("find_key", [key_identity(source, reference.encode()) for source in sources])
        if not rows and "~" in reference and "\0" not in reference:
            rows = await self._fetch("find_admitted", reference)
        return [row[0] for row in rows]

    async def history(self, event_id: UUID) -> History | None:
        found = await self._fetch("event", event_id)
        if not found:
            return None
        event = self._rows.event(found[0])
        requests = await self._fetch("request", event.request_id)
        deliveries = await self._fetch("deliveries", event_id, event.request_id, event.item)
        bodies = await self._fetch("owners", [body_identity(event.source, found[0]["fingerprint"])])
        return History(
            event,
            self._rows.request(requests[0]) if requests else None,
            tuple(map(self._rows.delivery, deliveries)),
            tuple(map(self._rows.attempt, await self._fetch("attempts", event_id))),
            await self.ledger.of_event(event_id),
            tuple(map(self._rows.action, await self._fetch("actions", event_id))),
            self._rows.body_of(event, bodies),
        )

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        return await self.search.events(where, before=before, limit=limit)

    async def count(self, where: Filter) -> int:
        return await self.search.count(where)

    async def counts(self) -> dict[State, int]:
        return {State(row["state"]): row["n"] for row in await self._fetch("counts")}

    async def delivery_counts(self) -> dict[str, int]:
        return {row["outcome"]: row["n"] for row in await self._fetch("delivery_counts")}
