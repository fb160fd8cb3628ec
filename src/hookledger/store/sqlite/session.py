"""Runs operations on SQLite."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw

from ...errors import ConfigError
from ...model import Arrival, Recorded
from ..session import BATCH, Row, Session, Work, too_long
from ..text import Macro, columns, load, shared, written_out
from .connection import EPOCH, Run, connect, converted, translate
from .files import Connection
from .intake import record

T = TypeVar("T")

SEARCH = 10.0
"""Seconds that a search may take."""
_CAST = re.compile(r"::\w+(\[\])?")
_READING = (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)


@cache
def query(name: str) -> str:
    """A shared query in SQLite's words."""
    return _CAST.sub("", written_out(shared("sqlite")[name], MACROS))


def part(name: str) -> str:
    """What a query of the hot path has in common with those of the operations; ?1 is the present there."""
    return _CAST.sub("", written_out(shared("sqlite")[name], {**MACROS, "now": lambda _: "?1"}))


def _list(given: str) -> str:
    name, kind = given.split()
    return f"(SELECT {_element('value', kind)} FROM json_each({name}))"  # noqa: S608 - of our own SQL files


def _rows(given: str) -> str:
    name, named = columns(given)
    found = [f"{_element(f'value ->> {place}', kind)} AS {title}" for place, (title, kind) in enumerate(named)]
    return f"(SELECT {', '.join(found)} FROM json_each(:{name}))"  # noqa: S608 - of our own SQL files


def _element(value: str, kind: str) -> str:
    return f"unhex({value})" if kind in ("uuid", "bytea") else value


MACROS: dict[str, Macro] = {
    "schema": lambda _: "main",
    "now": lambda _: ":now",
    "seconds": lambda given: f"CAST(({given}) * 1000000 AS INTEGER)",
    "elapsed": lambda given: f"(({given}) / 1e6)",
    "greatest": lambda _: "max",
    "least": lambda _: "min",
    "lock": lambda _: "",
    "lock_free": lambda _: "",
    "indexed": lambda given: f"INDEXED BY {given}",
    "ordered": lambda _: "CROSS",
    "offset_0": lambda _: "",
    "list": _list,
    "rows": _rows,
}


@cache
def queries() -> dict[str, str]:
    """Those of the hot path."""
    given = ("not_paused", "later_kind", "unplaced", "into_answers", "or_again")
    return load(__package__, **{name: part(name) for name in given})


class SqliteSession:
    """Its queries never suspend. `now` is one moment for the whole operation."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection = connection
        self._now = now

    async def __call__(self, query_name: str, /, **parameters: Any) -> list[Row]:
        return await self.run(query(query_name), parameters)

    def piece(self, query_name: str) -> str:
        return query(query_name)

    async def run(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        return list(converted(self.cursor(text, parameters)))

    def cursor(self, text: str, parameters: Mapping[str, Any]) -> apsw.Cursor:
        """To read rows one by one, as SQLite keeps them."""
        return self._connection.execute(text, self._given(parameters))

    async def many(self, query_name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._connection.executemany(query(query_name), [self._given(row) for row in rows])

    def _given(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {**{name: _stored(value) for name, value in parameters.items()}, "now": self._now}

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        return record(self._connection, queries().__getitem__, self._now, arrivals)


def connection_of(db: Session) -> apsw.Connection:
    """For the ledger, whose own statements an operation may need in its transaction."""
    assert isinstance(db, SqliteSession)
    return db._connection


class LimitedSession(SqliteSession):
    """No query begins when the time is up: the progress handler does not stop a short one."""

    def __init__(self, connection: apsw.Connection, now: int, ends: float, limit: float) -> None:
        super().__init__(connection, now)
        self._ends = ends
        self._limit = limit

    async def run(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        if time.monotonic() >= self._ends:
            raise too_long(self._limit)
        return await super().run(text, parameters)


def _stored(value: Any) -> Any:
    """A parameter as SQLite keeps it: times as microseconds, ids as bytes, lists as JSON."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return json.dumps([_listed(element) for element in value], ensure_ascii=False)
    return value


def _listed(value: Any) -> Any:
    """An element of a list; bytes as hexadecimal text."""
    if isinstance(value, tuple):
        return [_listed(element) for element in value]
    value = _stored(value)
    return value.hex() if isinstance(value, bytes) else value


def finished(operation: Coroutine[Any, Any, T]) -> T:
    """Run an operation to its end, here and now."""
    try:
        operation.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    operation.close()
    raise RuntimeError(f"{operation!r} awaited something else than its queries, with the write lock held")


def _reading(action: int, *_: str | None) -> int:
    """Lets a query read, and nothing else: no PRAGMA, no ATTACH."""
    return apsw.SQLITE_OK if action in _READING else apsw.SQLITE_DENY


class SqliteDatabase:
    """`do` runs a job on the store's thread, `write` in a durable transaction there."""

    exclusive = True

    def __init__(self, path: Path, do: Run, write: Run, now: Callable[[], int]) -> None:
        self._path = path
        self._do = do
        self._write = write
        self._now = now

    def open(self) -> Connection:
        """A connection of the caller's own, for what no ack may wait for."""
        return connect(self._path, wait=5.0)

    async def write(self, work: Work[T], *, durable: bool = True, limit: float | None = None) -> T:
        del limit  # no longer than for the lock; and it waits for the disk in any case
        return await self._write(
            lambda connection: finished(work(SqliteSession(connection, self._now()))), queued=durable
        )

    async def read(self, work: Work[T]) -> T:
        return await self._do(lambda connection: finished(work(SqliteSession(connection, self._now()))))

    async def search(self, work: Work[T]) -> T:
        return await self.scan(work, SEARCH)

    async def scan(self, work: Work[T], limit: float) -> T:
        given_up = threading.Event()  # stops the query if the caller is cancelled
        try:
            return await asyncio.to_thread(self._scan, work, limit, given_up)
        finally:
            given_up.set()

    def _scan(self, work: Work[T], limit: float, given_up: threading.Event) -> T:
        ends = time.monotonic() + limit
        try:
            with closing(self.open()) as connection:
                connection.execute("PRAGMA cache_size = -65536")  # 64 MiB: ids are looked up all over the tables
                connection.set_progress_handler(lambda: given_up.is_set() or time.monotonic() > ends, 20_000)
                connection.execute("BEGIN")
                return finished(work(LimitedSession(connection, self._now(), ends, limit)))
        except apsw.InterruptError as error:
            raise too_long(limit) from error
        except (apsw.Error, OverflowError, ValueError) as error:
            raise translate(error) from error

    async def select(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        # On a separate connection, as a scan: read in threads, one batch after the other.
        try:
            with closing(await asyncio.to_thread(self.open)) as connection:
                connection.execute("PRAGMA query_only = ON")
                connection.authorizer = _reading
                cursor = await asyncio.to_thread(connection.execute, sql)
                while batch := await asyncio.to_thread(lambda: list(islice(cursor, BATCH))):
                    yield [tuple(row) for row in batch]
        except (apsw.SQLError, apsw.AuthError, apsw.ReadOnlyError) as error:
            raise ConfigError(f"the query cannot be run: {error}") from error
        except apsw.Error as error:
            raise translate(error) from error
