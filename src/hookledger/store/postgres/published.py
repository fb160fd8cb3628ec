"""Published keys on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..published import PublishedKey
from ..queries import load
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "published.sql")


class PostgresPublishedKeys:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections

    async def keep(self, key: PublishedKey, *, most: int) -> None:
        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                values = (key.digest, key.provider, key.url, key.content, key.lifetime, key.age)
                await connection.execute(self._sql("keep"), *values)
                await connection.execute(self._sql("trim"), key.provider, most)

        await self._connections().insist(work)

    async def kept(self) -> list[PublishedKey]:
        async with self._connections().use() as connection:
            return [PublishedKey(*row) for row in await connection.fetch(self._sql("kept"))]
