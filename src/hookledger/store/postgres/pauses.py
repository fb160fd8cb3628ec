"""Pauses on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...identities import new_id
from ...jobs import Pause
from ..pauses import not_paused, pause_of, paused_already, words
from ..queries import load
from ..rows import Rows
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "pauses.sql")


class PostgresPauses:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections
        self._rows = Rows()

    async def pause(self, source: str, pattern: str, actor: str, reason: str) -> Pause:
        async def work(connection: Any) -> Pause | None:
            async with transaction(connection, self._sql("begin")):
                row = await connection.fetchrow(self._sql("pause"), source, pattern, actor, reason)
                if row is None:
                    return None
                await self._note(connection, "pause", actor, reason, source, pattern)
                return pause_of(row, self._rows)

        made = await self._connections().insist(work)
        if made is None:
            for pause in await self.pauses():
                if (pause.source, pause.pattern) == (source, pattern):
                    raise paused_already(pause)
            raise not_paused(source, pattern)  # somebody took it back just now
        return made

    async def resume(self, source: str, pattern: str, actor: str, reason: str) -> None:
        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                if not await connection.fetch(self._sql("resume"), source, pattern):
                    raise not_paused(source, pattern)
                await self._note(connection, "resume", actor, reason, source, pattern)

        await self._connections().insist(work)

    async def pauses(self) -> list[Pause]:
        async with self._connections().use() as connection:
            return [pause_of(row, self._rows) for row in await connection.fetch(self._sql("pauses"))]

    async def _note(
        self, connection: Any, name: str, actor: str, reason: str, source: str, pattern: str
    ) -> None:
        states = ("open", "paused") if name == "pause" else ("paused", "open")
        note = (new_id(), name, actor, reason, words(source, pattern), *states)
        await connection.execute(self._sql("note"), *note)
