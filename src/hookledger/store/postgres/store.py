"""The store on PostgreSQL, in a schema of its own inside the user's database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from asyncpg import Connection
from asyncpg.pool import Pool, PoolConnectionProxy

from ...clock import Clock
from ...errors import BadData, ConfigError, SchemaMismatch, StoreError, Unavailable, WrongState
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
    id_bounds,
    key_identity,
    new_id,
)
from ...states import State
from .. import SCHEMA_RANGE
from ..queries import load, migrations
from ..rows import Rows, outcome_values
from . import intake
from .intake import columns
from .transaction import PostgresTransaction

T = TypeVar("T")
_QUERIES = load(__package__)
_DATA_ERRORS = ("22", "23", "54")
_TRY_AGAIN = ("40001", "40P01")
# Everything that means "not now": the driver's own errors and the operating system's.
OUTAGE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # seen when the server shuts down between two messages of one query
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
)


class PostgresStore:
    """`pooler=True` for a transaction pooler between us and the server: no statement outlives a transaction."""

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
        self._rendered: tuple[float, dict[str, str]] = (float("nan"), {})
        self._rows = Rows()
        self._pool: Pool[Any] | None = None
        self._handlers: Pool[Any] | None = None

    # ── life ──

    def sql(self, name: str) -> str:
        """A named query for this schema and clock offset."""
        offset, rendered = self._rendered
        if offset != self._clock.offset:
            offset, rendered = self._clock.offset, {}
            self._rendered = (offset, rendered)
        if name not in rendered:
            clock = "clock_timestamp()" if not offset else f"clock_timestamp() + interval '{offset} seconds'"
            rendered[name] = self.render(_QUERIES[name]).replace("{clock}", f"(SELECT {clock})")
        return rendered[name]

    def render(self, sql: str) -> str:
        """SQL with the schema's quoted name in it."""
        return sql.replace("{schema}", '"' + self._schema.replace('"', '""') + '"')

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"timeout": self._timeout, "command_timeout": self._timeout}
        if self._pooler:
            options |= {"statement_cache_size": 0}
        return options

    async def open(self, *, handlers: int = 0) -> None:
        try:
            # Nothing is reset between uses: we change only transaction-local settings.
            self._pool = await asyncpg.create_pool(
                self._url, min_size=1, max_size=self._connections, reset=_nothing, **self._options()
            )
            if handlers:
                # A statement of a handler may take as long as the handler may.
                options = {**self._options(), "command_timeout": None}
                self._handlers = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=handlers, reset=_nothing, **options
                )
        except OUTAGE as error:
            raise Unavailable(f"PostgreSQL cannot be reached: {error or type(error).__name__}") from error
        except ValueError as error:  # its words may quote a password
            raise ConfigError("the database's URL cannot be read: postgresql://USER@HOST:PORT/NAME") from error

    async def close(self) -> None:
        for pool in (self._handlers, self._pool):
            if pool is not None:
                try:
                    await asyncio.wait_for(pool.close(), self._timeout)
                except (*OUTAGE,):
                    pool.terminate()
        self._pool = self._handlers = None

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        assert self._pool is not None, "the store is not open"
        async with self._pool.acquire(timeout=self._timeout) as connection:
            try:
                yield connection
            except asyncpg.InternalClientError:
                connection.terminate()  # out of step with the server: no later query could use it
                raise

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        """A connection; whatever goes wrong on it becomes one of our errors."""
        try:
            async with self._acquire() as connection:
                if self._pooler:
                    async with connection.transaction():
                        yield connection
                else:
                    yield connection
        except asyncpg.PostgresError as error:
            raise _translate(error) from error
        except OUTAGE as error:
            raise Unavailable(f"PostgreSQL: {error or type(error).__name__}") from error

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        async with self._use() as connection:
            return await connection.fetch(self.sql(name), *args)

    def migrations(self) -> list[tuple[str, str]]:
        start = ("0000_schema", self.sql("create_schema"))
        return [start, *((f"{v:04}_{name}", self.render(text)) for v, name, text in migrations(__package__))]

    async def migrate(self) -> list[str]:
        applied = []
        async with self._use() as connection, connection.transaction():
            await connection.execute(self.sql("lock_migrations"), self._schema)
            await connection.execute(self.sql("create_schema"))
            current = await connection.fetchval(self.sql("applied"))
            for version, name, text in migrations(__package__):
                if version > current:
                    await connection.execute(self.render(text))
                    await connection.execute(self.sql("note_migration"), version, name)
                    applied.append(f"{version:04}_{name}")
        return applied

    async def health(self) -> Health:
        schema = 0
        try:
            async with self._use() as connection:
                table = self.render("{schema}.migrations")
                if await connection.fetchval(self.sql("has_schema"), table):
                    schema = await connection.fetchval(self.sql("applied"))
                low, high = SCHEMA_RANGE
                if not low <= schema <= high:
                    problem = (
                        f"schema version {schema}, this release needs {low} to {high}: run 'hookledger migrate'"
                    )
                    return Health(False, schema, 0.0, problem)
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
        return await self._take_in(intake.record_new, arrivals)

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        return await self._take_in(intake.record, arrivals)

    async def _take_in(
        self, take: Callable[[Any, intake.Sql, Sequence[Arrival]], Awaitable[T]], arrivals: Sequence[Arrival]
    ) -> T:
        for _ in range(3):
            try:
                async with self._acquire() as connection:
                    return await take(connection, self.sql, arrivals)
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _TRY_AGAIN:
                    raise _translate(error) from error
            except OUTAGE as error:
                raise Unavailable(f"PostgreSQL: {error or type(error).__name__}") from error
        raise Unavailable("deadlocks three times in a row")

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

    def transaction(self) -> PostgresTransaction:
        assert self._handlers is not None, "the store was opened without handlers"
        return PostgresTransaction(self._handlers, self.sql, self._idle_limit)

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
        return PostgresPulse(self, (worker, msgspec.json.encode(handles).decode()), patience)

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
        return [
            WorkerInfo(
                row["id"],
                msgspec.json.decode(row["handles"], type=tuple[tuple[str, str], ...]),
                row["seen_ago"],
            )
            for row in await self._fetch("workers")
        ]

    async def forget_workers(self, unseen_for: float) -> None:
        await self._fetch("forget_workers", unseen_for)

    # ── operate ──

    async def retry(self, event_id: UUID, expected: State, actor: str, reason: str) -> None:
        if not await self._fetch("retry", event_id, expected.value, new_id(), actor, reason):
            raise WrongState(f"event {event_id} is not {expected} any more, or cannot be retried from there")

    async def find(self, reference: str) -> list[UUID]:
        bounds = id_bounds(reference)
        rows = await self._fetch("find_id", *bounds) if bounds else []
        if not rows:
            sources = [row["name"] for row in await self._fetch("sources")]
            rows = await self._fetch("find_key", [key_identity(source, reference.encode()) for source in sources])
        return [row[0] for row in rows]

    async def history(self, event_id: UUID) -> History | None:
        found = await self._fetch("event", event_id)
        if not found:
            return None
        event = self._rows.event(found[0])
        requests = await self._fetch("request", event.request_id)
        deliveries = await self._fetch("deliveries", event_id, event.request_id, event.item)
        return History(
            event,
            self._rows.request(requests[0]) if requests else None,
            tuple(map(self._rows.delivery, deliveries)),
            tuple(map(self._rows.attempt, await self._fetch("attempts", event_id))),
            tuple(map(self._rows.action, await self._fetch("actions", event_id))),
        )

    async def events(
        self,
        *,
        source: str | None = None,
        state: State | None = None,
        type: str | None = None,  # noqa: A002 - the word users say
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[EventRow]:
        rows = await self._fetch("events", source, state.value if state else None, type, before, limit)
        return [self._rows.event(row) for row in rows]

    async def counts(self) -> dict[State, int]:
        return {State(row["state"]): row["n"] for row in await self._fetch("counts")}

    async def delivery_counts(self) -> dict[str, int]:
        return {row["outcome"]: row["n"] for row in await self._fetch("delivery_counts")}


class PostgresPulse:
    """The heartbeat's own connection: opened when needed, thrown away when it fails."""

    def __init__(self, store: PostgresStore, who: tuple[str, str], patience: float) -> None:
        self._store = store
        self._who = who
        self._patience = patience
        self._connection: Connection[Any] | None = None

    async def beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        try:
            async with asyncio.timeout(self._patience):
                return await self._beat(claims, lease)
        except OUTAGE as error:
            await self.close()
            raise Unavailable(f"PostgreSQL: {error or type(error).__name__}") from error

    async def _beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._store._url, **self._store._options())
        async with self._connection.transaction():
            # Registered anew each time: whoever was away for long may have been forgotten.
            await self._connection.execute(self._store.sql("register"), *self._who)
            if not claims:
                return set()
            rows = await self._connection.fetch(self._store.sql("beat"), *columns(sorted(claims)), lease)
            return {row["id"] for row in rows}

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


async def _nothing(_: Any) -> None:
    """What a connection needs between two uses."""


def _translate(error: asyncpg.PostgresError) -> Exception:
    code = error.sqlstate or ""
    if code[:2] in _DATA_ERRORS:
        return BadData(str(error))
    if code in ("3F000", "42P01", "42703"):
        return SchemaMismatch(f"{error}: run 'hookledger migrate'")
    return Unavailable(f"PostgreSQL: {error}")
