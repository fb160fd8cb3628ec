"""Searching on SQLite: on a connection and a thread of its own, so that no ack waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

from ..accounting import too_long
from ..queries import load
from .connection import connect, rows, translate

SQL = load(__package__, "search.sql")


class SqliteAsks:
    """Statements for `Searching`."""

    def __init__(self, path: Path, now: Callable[[], int]) -> None:
        self._path = path
        self._now = now

    def sql(self, name: str) -> str:
        return SQL[name]

    async def fetch(self, sql: str, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        return await asyncio.to_thread(self._look, lambda c: rows(c, sql, values), seconds or 10.0)

    async def owners(self, name: str, identities: Sequence[bytes]) -> list[UUID]:
        def job(connection: apsw.Connection) -> list[UUID]:
            return [UUID(bytes=row[0]) for i in identities for row in rows(connection, SQL[name], (i,))]

        return await asyncio.to_thread(self._look, job, 10.0)

    def now(self) -> tuple[Any, ...]:
        return (self._now(),)

    def _look(self, job: Callable[[apsw.Connection], list[Any]], seconds: float) -> list[Any]:
        ends = time.monotonic() + seconds
        try:
            with closing(connect(self._path, wait=5.0)) as connection:
                connection.set_progress_handler(lambda: time.monotonic() > ends, 20_000)
                return job(connection)
        except apsw.InterruptError as error:
            raise too_long(seconds) from error
        except apsw.Error as error:
            raise translate(error) from error
