"""The heartbeat on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
from asyncpg import Connection

from ...model import Handled
from ..ops.workers import register
from .connection import OUTAGE, transaction, translate
from .dialect import Dialect
from .intake import columns
from .session import PostgresSession, Queries


class PostgresHeartbeat:
    """The heartbeat's own connection: opened when needed, thrown away when it fails."""

    def __init__(
        self,
        url: str,
        options: dict[str, Any],
        sql: Dialect,
        queries: Queries,
        who: tuple[str, Handled | None],
        patience: float,
    ) -> None:
        """`who`: the worker, and what it handles; None: it is not registered."""
        self._url = url
        self._options = options
        self._sql = sql
        self._queries = queries
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
        # A worker frozen in here must not keep the rows that others reclaim when the lease is over.
        idle = f"SET LOCAL idle_in_transaction_session_timeout = {max(1, int(lease * 1000))}"
        async with transaction(self._connection, f"BEGIN; {idle}"):
            await register(PostgresSession(self._connection, self._queries), *self._who)
            if not claims:
                return set()
            rows = await self._connection.fetch(self._sql("beat"), *columns(sorted(claims)), lease)
            return {row["id"] for row in rows}

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
