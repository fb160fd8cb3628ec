"""The books on SQLite: a read transaction on a connection and a thread of its own, so that no ack waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import apsw

from ...accounting import ENTRIES, Accounting, Oddity, balance
from ...ledger import UNKNOWN_ARGUMENTS
from ..accounting import oddity, too_long
from ..queries import load
from .connection import Row, connect, rows, translate
from .intake import micros

T = TypeVar("T")
SQL = load(__package__, "accounting.sql")


class SqliteBooks:
    def __init__(self, path: Path, now: Callable[[], int]) -> None:
        self._path = path
        self._now = now

    async def accounting(self, *, limit: float = 300.0) -> Accounting:
        ends = time.monotonic() + limit

        def job(connection: apsw.Connection) -> Accounting:
            def fetch(name: str) -> list[Row]:
                if time.monotonic() >= ends:  # what is short is not interrupted
                    raise too_long(limit)
                return rows(connection, SQL[name])

            connection.execute(SQL["begin"])
            figures: dict[str, dict[str, int]] = {}
            for book, entry, n in fetch("figures"):
                figures.setdefault(book, {})[entry] = n
            return balance(figures, _odd((kind, fetch(kind)) for kind in ENTRIES))

        return await asyncio.to_thread(self._look, job, limit)

    async def stuck(self, longer_than: float) -> list[Oddity]:
        args = (self._now(), micros(longer_than))
        names = ("stuck_events", "stuck_effects")
        return await asyncio.to_thread(self._look, lambda c: _odd((name, rows(c, SQL[name], args)) for name in names))

    async def unperformable(self) -> Oddity | None:
        name, args = "unperformable", (UNKNOWN_ARGUMENTS,)
        found = await asyncio.to_thread(self._look, lambda c: _odd([(name, rows(c, SQL[name], args))]))
        return found[0] if found else None

    async def settings(self) -> dict[str, str]:
        return dict(await asyncio.to_thread(self._look, lambda c: rows(c, SQL["settings"])))

    async def integrity(self, *, limit: float = 300.0) -> list[str]:
        found = await asyncio.to_thread(self._look, lambda c: rows(c, SQL["integrity"]), limit)
        return [row[0] for row in found if row[0] != "ok"]

    def _look(self, job: Callable[[apsw.Connection], T], limit: float = 10.0) -> T:
        ends = time.monotonic() + limit
        try:
            with closing(connect(self._path, wait=5.0)) as connection:
                connection.execute("PRAGMA cache_size = -65536")  # 64 MiB: ids are looked up all over the tables
                connection.set_progress_handler(lambda: time.monotonic() > ends, 20_000)
                return job(connection)
        except apsw.InterruptError as error:
            raise too_long(limit) from error
        except apsw.Error as error:
            raise translate(error) from error


def _odd(found: Iterable[tuple[str, Sequence[Row]]]) -> list[Oddity]:
    odd = (oddity(kind, some, _ident) for kind, some in found)
    return [one for one in odd if one is not None]


def _ident(value: bytes) -> UUID:
    return UUID(bytes=value)
