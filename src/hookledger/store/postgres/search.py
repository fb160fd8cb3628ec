"""Searching on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from ..queries import load
from ..rows import Rows, same
from ..session import too_long
from ..trouble import Looking
from . import ledger
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "search.sql")
TROUBLE = load(
    __package__, "trouble.sql", columns=ledger.QUERIES["columns"], begin=QUERIES["begin"], limit=QUERIES["limit"]
)


class PostgresAsks:
    """Statements for `Searching` and `Looking`, on a connection of the pool."""

    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self.sql = sql
        self._connections = connections

    async def fetch(self, sql: str, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        if seconds is not None:
            return await self._limited(sql, values, seconds)
        async with self._connections().use() as connection:
            return list(await connection.fetch(sql, *values))

    async def _limited(self, sql: str, values: Sequence[Any], seconds: float) -> list[Any]:
        async def work(connection: Any) -> list[Any]:
            async with transaction(connection, self.sql("begin")):
                await connection.execute(self.sql("limit"), str(max(1, int(seconds * 1000))))
                try:
                    # The server stops it; the driver's own limit is only for a server that does not answer.
                    return list(await connection.fetch(sql, *values, timeout=seconds + 10))
                except asyncpg.QueryCanceledError as error:
                    raise too_long(seconds) from error

        return await self._connections().insist(work)

    async def owners(self, name: str, identities: Sequence[bytes]) -> list[UUID]:
        return [row[0] for row in await self.fetch(self.sql(name), (identities,))]

    def now(self) -> tuple[Any, ...]:
        return ()


def looking(sql: Dialect, connections: Callable[[], Connections]) -> Looking:
    return Looking(PostgresAsks(sql, connections), "$", Rows(), ident=same, late=float)
