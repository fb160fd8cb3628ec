"""The heartbeat on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
from asyncpg import Connection

from .connection import OUTAGE, translate
from .dialect import Dialect
from .intake import columns


class PostgresPulse:
    """The heartbeat's own connection: opened when needed, thrown away when it fails."""

    def __init__(
        self, url: str, options: dict[str, Any], sql: Dialect, who: tuple[str, str], patience: float
    ) -> None:
        self._url = url
        self._options = options
        self._sql = sql
        self._who = who
        self._patience = patience
        self._connection: Connection[Any] | None = None

    async def beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        try:
            async with asyncio.timeout(self._patience):
                return await self._beat(claims, lease)
        except OUTAGE as error:
            await self.close()
            raise translate(error) from error

    async def _beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url, **self._options)
        async with self._connection.transaction():
            # Registered anew each time: whoever was away for long may have been forgotten.
            await self._connection.execute(self._sql("register"), *self._who)
            if not claims:
                return set()
            rows = await self._connection.fetch(self._sql("beat"), *columns(sorted(claims)), lease)
            return {row["id"] for row in rows}

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
