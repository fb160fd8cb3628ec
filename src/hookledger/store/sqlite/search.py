"""Searching on SQLite: on a connection and a thread of its own, so that no ack waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

from ..queries import load
from ..rows import Rows
from ..session import too_long
from ..trouble import Looking
from . import ledger
from .connection import connect, rows, translate
from .intake import micros

SQL = load(__package__, "search.sql")
TROUBLE = load(__package__, "trouble.sql", columns=ledger.SQL["columns"])


class SqliteAsks:
    """Statements for `Searching` and `Looking`."""

    def __init__(self, path: Path, now: Callable[[], int], queries: Mapping[str, str] = SQL) -> None:
        self._path = path
        self._now = now
        self._queries = queries

    def sql(self, name: str) -> str:
        return self._queries[name]

    async def fetch(self, sql: str, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        return await self._asked(lambda c: rows(c, sql, values), seconds or 10.0)

    async def owners(self, name: str, identities: Sequence[bytes]) -> list[UUID]:
        def job(connection: apsw.Connection) -> list[UUID]:
            return [UUID(bytes=row[0]) for i in identities for row in rows(connection, self.sql(name), (i,))]

        return await self._asked(job, 10.0)

    def now(self) -> tuple[Any, ...]:
        return (self._now(),)

    async def _asked(self, job: Callable[[apsw.Connection], list[Any]], seconds: float) -> list[Any]:
        """What nobody waits for any more is stopped."""
        left = threading.Event()
        try:
            return await asyncio.to_thread(self._look, job, seconds, left)
        finally:
            left.set()

    def _look(self, job: Callable[[apsw.Connection], list[Any]], seconds: float, left: threading.Event) -> list[Any]:
        ends = time.monotonic() + seconds
        try:
            with closing(connect(self._path, wait=5.0)) as connection:
                connection.set_progress_handler(lambda: left.is_set() or time.monotonic() > ends, 20_000)
                return job(connection)
        except apsw.InterruptError as error:
            raise too_long(seconds) from error
        except apsw.Error as error:
            raise translate(error) from error


def looking(path: Path, now: Callable[[], int], values: Rows) -> Looking:
    return Looking(SqliteAsks(path, now, TROUBLE), "?", values, ident=lambda ident: ident.bytes, late=micros)
