"""The books on PostgreSQL: one snapshot, whole tables, a limit of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import asyncpg

from ...accounting import ENTRIES, Accounting, Oddity, balance
from ...ledger import UNKNOWN_ARGUMENTS
from ..accounting import oddity, too_long
from ..queries import load
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "accounting.sql")


class PostgresBooks:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections

    async def accounting(self, *, limit: float = 300.0) -> Accounting:
        ends = time.monotonic() + limit

        async def work(connection: Any) -> Accounting:
            async def fetch(name: str) -> list[Any]:
                left = ends - time.monotonic()
                if left <= 0:
                    raise too_long(limit)
                await connection.execute(self._sql("limit"), str(max(1, int(left * 1000))))
                try:
                    # The server stops it; the driver's own limit is only for a server that does not answer.
                    return list(await connection.fetch(self._sql(name), timeout=left + 10))
                except asyncpg.QueryCanceledError as error:
                    raise too_long(limit) from error

            async with transaction(connection, self._sql("begin")):
                figures: dict[str, dict[str, int]] = {}
                for book, entry, n in await fetch("figures"):
                    figures.setdefault(book, {})[entry] = n
                found = [oddity(kind, await fetch(kind)) for kind in ENTRIES]
            return balance(figures, [odd for odd in found if odd is not None])

        return await self._connections().insist(work)

    async def stuck(self, longer_than: float) -> list[Oddity]:
        async with self._connections().use() as connection:
            found = [
                oddity(name, await connection.fetch(self._sql(name), longer_than))
                for name in ("stuck_events", "stuck_effects")
            ]
        return [odd for odd in found if odd is not None]

    async def unperformable(self) -> Oddity | None:
        async with self._connections().use() as connection:
            return oddity("unperformable", await connection.fetch(self._sql("unperformable"), UNKNOWN_ARGUMENTS))

    async def settings(self) -> dict[str, str]:
        async with self._connections().use() as connection:
            return {row[0]: row[1] for row in await connection.fetch(self._sql("settings"))}

    async def integrity(self, *, limit: float = 300.0) -> list[str]:
        del limit
        return []  # PostgreSQL checks its pages as it reads them, where checksums are on
