"""The store on PostgreSQL, in its own schema inside the user's database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from operator import itemgetter
from typing import Any
from uuid import UUID

import asyncpg
from asyncpg.pool import Pool, PoolConnectionProxy

from ...clock import Clock
from ...errors import ConfigError, SchemaMismatch, StoreError, Unavailable
from ...model import Arrival, Claimed, Handled, Kind, Outcome, Recorded, Share, Waiting
from ...states import DeliveryOutcome
from .. import BEFORE_FIRST, fits, is_newer, out_of_range
from ..history import Health
from ..ops.answers import Claim, claims, met, states
from ..ops.copy import Copies
from ..ops.jobs import Jobs
from ..protocol import Adapter, Store, Transactions
from ..rows import stage_values, value_of
from ..text import load, migrations, shared
from ..url import without_password
from . import intake, ledger
from .connection import BEGIN, OUTAGE, Connections, nothing, transaction
from .dialect import Dialect
from .heartbeat import PostgresHeartbeat
from .ledger import PostgresLedger
from .pooled import PooledConnection
from .prove import prove
from .session import PostgresDatabase, Queries, values_of
from .settle import settle_values
from .tables import PostgresTables
from .transaction import LazyTransaction, PostgresTransaction

_GIVEN = (
    *("not_paused", "later_kind", "claimable", "unplaced", "into_answers", "or_again", "begin_stages", "other_stage"),
    *("is_same_event", "into_kept_answers", "unless_kept"),
)
_QUERIES = load(__package__, **{name: shared("postgres")[name] for name in _GIVEN})


class PostgresStore(Store):
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
        self.sql: Dialect = Dialect(_QUERIES, schema, self._clock)
        """A named query for this schema and clock offset."""
        self._queries = Queries(schema, self._clock, self.sql)
        database = PostgresDatabase(self._queries, self._opened)
        calls = PostgresDatabase(self._queries, self._calling)
        effects = PostgresLedger(Dialect(ledger.QUERIES, schema, self._clock), self._queries, self._calling)
        super().__init__(database, self._clock, effects, Jobs(database, effects), calls)
        self.copies: Copies = Copies(database, PostgresTables(schema))
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

    async def open(self, *, handlers: int = 0, writer_process: bool = False) -> None:
        del writer_process  # PostgreSQL's own processes write
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
            why = f"{error or type(error).__name__}; check that it runs and that the URL is right"
            raise Unavailable(f"cannot connect to {without_password(self._url)}: {why}") from error
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

    def _calling(self) -> Connections:
        return self._for_calls or self._opened()

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
        async with self._opened().bare() as connection, connection.transaction():
            await connection.execute(self.sql("lock_migrations"), self._schema)
            await connection.execute(self.sql("create_schema"))
            current = await connection.fetchval(self.sql("applied"))
            if current == BEFORE_FIRST:
                raise SchemaMismatch(out_of_range(current))
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
                oldest = await self._oldest_supported(connection) if is_newer(schema) else None
                if not fits(schema, oldest):
                    return Health(False, schema, 0.0, out_of_range(schema))
                before = time.time()
                there = await connection.fetchval(self.sql("probe"))
                skew = there - (before + time.time()) / 2
        except (Unavailable, StoreError) as error:
            return Health(False, schema, 0.0, str(error))
        return Health(True, schema, skew)

    async def _oldest_supported(self, connection: Any) -> int | None:
        sql, _ = self._queries["oldest_supported"]
        oldest: int | None = await connection.fetchval(sql)
        return oldest

    # ── intake ──

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]:
        if self._pooler:  # one statement outside a transaction block is not safe behind a transaction pooler
            return [None] * len(arrivals)
        return await self._opened().insist(lambda c: intake.record_new(c, self.sql, arrivals))

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        return await self._opened().insist(lambda c: intake.record(c, self.sql, arrivals))

    async def claim_new(self, arrivals: Sequence[Arrival], worker: str, lease: float) -> Sequence[Claim | None]:
        if self._pooler:
            return [None] * len(arrivals)
        return await self._opened().insist(lambda c: intake.claim_new(c, self.sql, arrivals, worker, lease))

    async def record_claimed(self, arrivals: Sequence[Arrival], worker: str, lease: float) -> list[Claim]:
        async def run(connection: Any) -> list[Claim]:
            async with transaction(connection, BEGIN):
                classification = await intake.record_inside(connection, self.sql, arrivals)
                recorded = [one.recorded for one in classification.verdicts]
                new = [one.event_id for one in recorded if one.outcome is DeliveryOutcome.ACCEPTED]
                rows = await connection.fetch(self.sql("claim_seen"), worker, lease, new, 0, False) if new else []
                claimed = {row["id"]: value_of(Claimed, row) for row in rows}
                sql, names = self._queries["answer_states"]
                known = met(recorded, claimed)
                found = await connection.fetch(sql, *values_of(names, {"events": known})) if known else []
                return claims(recorded, claimed, states(found))

        return await self._opened().insist(run)

    # ── work ──

    async def waiting(self) -> list[Waiting]:
        rows = await self._fetch("waiting")
        return [Waiting(value_of(Kind, row), row["due_in"], row["alone"], row["unplaced"]) for row in rows]

    async def claim_shares(self, worker: str, shares: Sequence[Share], lease: float) -> list[Claimed]:
        kinds = [kind for share in shares for kind in share.kinds]
        numbers = [number for number, share in enumerate(shares) for _ in share.kinds]
        return await self._claim("claim", worker, lease, kinds, numbers, [shares[n].limit for n in numbers])

    async def claim_alone(self, worker: str, kinds: Sequence[Kind], lease: float) -> list[Claimed]:
        return await self._claim("claim_alone", worker, lease, kinds)

    async def claim_seen(
        self, event_id: UUID, seen: int, worker: str, lease: float, *, crashed: bool = False
    ) -> Claimed | None:
        rows = await self._fetch("claim_seen", worker, lease, [event_id], seen, crashed)
        return value_of(Claimed, rows[0]) if rows else None

    async def _claim(self, name: str, worker: str, lease: float, kinds: Sequence[Kind], *args: Any) -> list[Claimed]:
        named = ([getattr(kind, part) for kind in kinds] for part in ("source", "type", "version"))
        rows = await self._fetch(name, worker, lease, *named, *args)
        return [value_of(Claimed, row) for row in sorted(rows, key=itemgetter("due_at", "id"))]

    def transaction(self, adapter: Adapter | None = None) -> PostgresTransaction:
        if adapter is not None:
            return PostgresTransaction(adapter, self.sql, self._idle_limit, self._fate)
        assert self._handlers is not None, "the store was opened without handlers"
        return LazyTransaction(PooledConnection(self._handlers), self.sql, self._idle_limit)

    async def _fate(self, xid: str) -> str | None:
        [(fate,)] = await self._fetch("fate", xid)
        return None if fate is None else str(fate)

    async def check(self, transactions: Transactions) -> None:
        async with self._opened().bare() as connection, connection.transaction():
            await prove(transactions, self.transaction, self.sql, connection)

    async def settle(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        if not outcomes:
            return set()
        values = settle_values(outcomes, None)
        stages = stage_values(outcomes)
        if not stages:
            rows = await self._fetch("settle", *values)
            return {row["id"] for row in rows}
        async with self._use() as connection, transaction(connection, BEGIN):
            rows = await connection.fetch(self.sql("settle"), *values)
            settled = {row["id"] for row in rows}
            if begun := [stage for stage in stages if stage[1] in settled]:
                sql, names = self._queries["begin_stages"]
                await connection.execute(sql, *values_of(names, {"stages": begun}))
        return settled

    async def heartbeat(self, worker: str, handles: Handled | None, patience: float) -> PostgresHeartbeat:
        return PostgresHeartbeat(self._url, self._options(), self.sql, self._queries, (worker, handles), patience)

    async def renew(self, event_id: UUID, claim: int, lease: float) -> bool:
        return bool(await self._fetch("beat", [event_id], [claim], lease))
