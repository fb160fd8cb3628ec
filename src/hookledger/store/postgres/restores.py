"""Restores on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ...identities import new_id
from ..queries import load
from ..restores import DOUBTFUL, WORKER, Restore, not_closable, restore_of, still_open, words
from ..rows import Rows
from .connection import Connections, transaction
from .dialect import Dialect
from .ledger import PostgresLedger

QUERIES = load(__package__, "restores.sql")


class PostgresRestores:
    def __init__(self, sql: Dialect, ledger: PostgresLedger, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._ledger = ledger
        self._connections = connections
        self._rows = Rows()

    async def begin(self, backup_at: datetime, actor: str, reason: str) -> Restore:
        async def work(connection: Any) -> Restore:
            async with transaction(connection, self._sql("begin")):
                await connection.execute(self._sql("lock"))
                known = await self._open(connection)
                if known is not None and known.doubted_at is not None:
                    raise still_open(known)
                if known is not None:
                    return known
                row = await connection.fetchrow(self._sql("add"), new_id(), backup_at)
                restore = restore_of(row, self._rows)
                note = (new_id(), actor, reason, words(restore), "closed", "open")
                await connection.execute(self._sql("note"), *note)
                return restore

        return await self._connections().insist(work)

    async def doubt(self, restore: Restore, after: bytes, limit: int) -> tuple[int, bytes | None]:
        async def work(connection: Any) -> tuple[int, bytes | None]:
            async with transaction(connection, self._sql("begin")):
                args = (after, limit, restore.restored_at, restore.backup_at, WORKER, DOUBTFUL)
                found = await connection.fetch(self._sql("doubt"), *args)
                await self._ledger.attend(connection, {row["event_id"] for row in found})
                return len(found), found[-1]["identity"] if found else None

        return await self._connections().insist(work)

    async def doubted(self, restore: Restore) -> None:
        async with self._connections().use() as connection:
            await connection.execute(self._sql("doubted"), restore.id)

    async def close(self, actor: str, reason: str) -> Restore:
        async def work(connection: Any) -> Restore:
            async with transaction(connection, self._sql("begin")):
                row = await connection.fetchrow(self._sql("close"))
                if row is None:
                    raise not_closable(await self._open(connection))
                restore = restore_of(row, self._rows)
                note = (new_id(), actor, reason, words(restore), "open", "closed")
                await connection.execute(self._sql("note"), *note)
                return restore

        return await self._connections().insist(work)

    async def gap(self) -> Restore | None:
        async with self._connections().use() as connection:
            return await self._open(connection) if await connection.fetchval(self._sql("known")) else None

    async def may_be_done(self, restore: Restore, identity: bytes, generation: int, number: int) -> bool:
        async with self._connections().use() as connection:
            values = (restore.restored_at, identity, generation, number)
            return bool(await connection.fetchval(self._sql("may_be_done"), *values))

    async def _open(self, connection: Any) -> Restore | None:
        row = await connection.fetchrow(self._sql("open"))
        return None if row is None else restore_of(row, self._rows)
