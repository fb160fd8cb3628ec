"""Pauses on SQLite."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from ...identities import new_id
from ...jobs import Pause
from ..pauses import not_paused, pause_of, paused_already, words
from ..queries import load
from ..rows import Rows
from .circuits import Run
from .connection import rows

SQL = load(__package__, "pauses.sql")


class SqlitePauses:
    def __init__(self, read: Run, write: Run, now: Callable[[], int], values: Rows) -> None:
        self._read = read
        self._write = write
        self._now = now
        self._rows = values

    async def pause(self, source: str, pattern: str, actor: str, reason: str) -> Pause:
        def job(connection: apsw.Connection) -> Pause:
            now = self._now()
            made = rows(connection, SQL["pause"], (now, source, pattern, actor, reason))
            known = self._all(connection)
            [found] = [pause for pause in known if (pause.source, pause.pattern) == (source, pattern)]
            if not made:
                raise paused_already(found)
            states = ("open", "paused")
            note = (now, "pause", new_id().bytes, words(source, pattern), *states, actor, reason)
            connection.execute(SQL["note"], note)
            return found

        return await self._write(job)

    async def resume(self, source: str, pattern: str, actor: str, reason: str) -> None:
        def job(connection: apsw.Connection) -> None:
            now = self._now()
            if not rows(connection, SQL["resume"], (source, pattern)):
                raise not_paused(source, pattern)
            states = ("paused", "open")
            note = (now, "resume", new_id().bytes, words(source, pattern), *states, actor, reason)
            connection.execute(SQL["note"], note)

        await self._write(job)

    async def pauses(self) -> list[Pause]:
        return await self._read(self._all)

    def _all(self, connection: apsw.Connection) -> list[Pause]:
        return [pause_of(row, self._rows) for row in rows(connection, SQL["pauses"])]
