"""Runs operations on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import asyncpg

from ...clock import Clock
from ...errors import ConfigError
from ...model import Arrival, Recorded
from ..session import BATCH, Row, Session, Work, too_long
from ..text import PARAMETER, shared
from .connection import BEGIN, READ_COMMITTED, Connections, transaction
from .dialect import Dialect
from .intake import record_inside

T = TypeVar("T")

LIGHT = f"{READ_COMMITTED}; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '1s'"
"""What is done again after a crash need not be on disk."""
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL work_mem = '64MB'"
"""It may join whole tables, by hashing."""
REFUSED = ("22", "25", "2B", "2F", "42", "0A")
"""Classes of SQLSTATE that say the query itself is wrong, or would write."""


class Queries(Dialect):
    """The shared queries: SQL, and the names of its parameters in their order. `intake`: those of the hot path."""

    def __init__(self, schema: str, clock: Clock, intake: Dialect) -> None:
        super().__init__(shared("postgres"), schema, clock)
        self.intake = intake
        self._numbered: dict[tuple[str, float], tuple[str, tuple[str, ...]]] = {}

    def __getitem__(self, name: str) -> tuple[str, tuple[str, ...]]:
        key = name, self._clock.offset
        if key not in self._numbered:
            self._numbered[key] = numbered(self(name))
        return self._numbered[key]


def numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with a number for each parameter, and their names in that order."""
    names: dict[str, int] = {}
    sql = PARAMETER.sub(lambda match: f"${names.setdefault(match[1], len(names) + 1)}", text)
    return sql, tuple(names)


class PostgresSession:
    """`limit`: seconds that a query may take; None: as long as any on the connection."""

    def __init__(self, connection: Any, queries: Queries, limit: float | None = None) -> None:
        self._connection = connection
        self._queries = queries
        self._limit = limit

    async def __call__(self, query: str, /, **parameters: Any) -> list[Row]:
        sql, names = self._queries[query]
        return await self._fetch(sql, values_of(names, parameters))

    def piece(self, query: str) -> str:
        return self._queries(query)

    async def run(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        sql, names = numbered(text)
        return await self._fetch(sql, values_of(names, parameters))

    async def many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        sql, names = self._queries[query]
        await self._connection.executemany(sql, [values_of(names, row) for row in rows])

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        classification = await record_inside(self._connection, self._queries.intake, arrivals)
        return classification.by_arrival(arrivals)

    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[Row]:
        found: list[Row] = await self._connection.fetch(sql, *values, timeout=self._limit)
        return found


def connection_of(db: Session) -> Any:
    """For the ledger, whose own statements an operation may need in its transaction."""
    assert isinstance(db, PostgresSession)
    return db._connection


class LimitedSession(PostgresSession):
    """Each query has what is left of the time."""

    def __init__(self, connection: Any, queries: Queries, ends: float, limit: float) -> None:
        super().__init__(connection, queries)
        self._ends = ends
        self._seconds = limit

    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[Row]:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise too_long(self._seconds)
        await self._connection.execute(f"SET LOCAL statement_timeout = {max(1, int(left * 1000))}")
        try:
            # The server stops it; the driver's own limit is only for a server that does not answer.
            found: list[Row] = await self._connection.fetch(sql, *values, timeout=left + 10)
        except asyncpg.QueryCanceledError as error:
            raise too_long(self._seconds) from error
        return found


def values_of(names: Sequence[str], parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parameters in the order of their names."""
    return tuple(_value(parameters, name) for name in names)


def _value(parameters: Mapping[str, Any], name: str) -> Any:
    """Return a parameter; each column of a list of tuples is a separate array."""
    given, _, place = name.partition("__")
    value = parameters[given]
    return [_plain(row[int(place)]) for row in value] if place else _plain(value)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


class PostgresDatabase:
    """`connections` is asked at each use: the store may be opened later."""

    exclusive = False

    def __init__(self, queries: Queries, connections: Callable[[], Connections]) -> None:
        self._queries = queries
        self._connections = connections

    async def write(self, work: Work[T], *, durable: bool = True, limit: float | None = None) -> T:
        async def run(connection: Any) -> T:
            async with transaction(connection, BEGIN if durable else LIGHT):
                return await work(PostgresSession(connection, self._queries, limit))

        return await self._connections().insist(run)

    async def read(self, work: Work[T]) -> T:
        async with self._connections().use() as connection:
            return await work(PostgresSession(connection, self._queries))

    search = read

    async def scan(self, work: Work[T], limit: float) -> T:
        ends = time.monotonic() + limit

        async def run(connection: Any) -> T:
            async with transaction(connection, SNAPSHOT):
                return await work(LimitedSession(connection, self._queries, ends, limit))

        return await self._connections().insist(run)

    async def select(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        # With the extended protocol it is one statement: the query cannot end the transaction and then write.
        async with self._connections().bare() as connection:
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    query = await connection.prepare(sql)
                    if not query.get_attributes():
                        raise ConfigError("the query cannot be run: it gives no columns, so it is no SELECT")
                    cursor = await query.cursor()
                    while batch := await cursor.fetch(BATCH):
                        yield [tuple(row) for row in batch]
            except asyncpg.PostgresError as error:
                if (error.sqlstate or "")[:2] in REFUSED:
                    raise ConfigError(f"the query cannot be run: {error}") from error
                raise
