"""Restores on SQLite."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import apsw

from ...identities import new_id
from ..queries import load
from ..restores import DOUBTFUL, WORKER, Restore, not_closable, restore_of, still_open, words
from ..rows import Rows
from .connection import Run, rows
from .intake import micros
from .ledger import SqliteLedger

SQL = load(__package__, "restores.sql")


class SqliteRestores:
    def __init__(
        self, ledger: SqliteLedger, read: Run, write: Run, now: Callable[[], int], values: Rows
    ) -> None:
        self._ledger = ledger
        self._read = read
        self._write = write
        self._now = now
        self._rows = values

    async def begin(self, backup_at: datetime, actor: str, reason: str) -> Restore:
        def job(connection: apsw.Connection) -> Restore:
            for known in self._open(connection):
                if known.doubted_at is not None:
                    raise still_open(known)
                return known
            now = self._now()
            [row] = rows(connection, SQL["begin"], (now, new_id().bytes, micros(backup_at.timestamp())))
            restore = restore_of(row, self._rows)
            note = (now, "restore", new_id().bytes, words(restore), "closed", "open", actor, reason)
            connection.execute(SQL["note"], note)
            return restore

        return await self._write(job)

    async def doubt(self, restore: Restore, after: bytes, limit: int) -> tuple[int, bytes | None]:
        def job(connection: apsw.Connection) -> tuple[int, bytes | None]:
            now, since = self._now(), micros(restore.restored_at.timestamp())
            found = rows(connection, SQL["doubtful"], (since, after, limit))
            for row in found:
                connection.execute(SQL["doubt"], (now, row["identity"], DOUBTFUL))
                if row["state"] == "planned":
                    sent = micros(restore.backup_at.timestamp())
                    self._ledger.add_call(
                        connection, sent, WORKER, row["identity"], row["number"] + 1, row["generation"]
                    )
            for event_id in {row["event_id"] for row in found}:
                self._ledger.attend(connection, event_id)
            return len(found), found[-1]["identity"] if found else None

        return await self._write(job)

    async def doubted(self, restore: Restore) -> None:
        await self._write(lambda connection: connection.execute(SQL["doubted"], (self._now(), restore.id.bytes)))

    async def close(self, actor: str, reason: str) -> Restore:
        def job(connection: apsw.Connection) -> Restore:
            now = self._now()
            found = rows(connection, SQL["close"], (now,))
            if not found:
                raise not_closable(next(iter(self._open(connection)), None))
            restore = restore_of(found[0], self._rows)
            note = (now, "restore", new_id().bytes, words(restore), "open", "closed", actor, reason)
            connection.execute(SQL["note"], note)
            return restore

        return await self._write(job)

    async def gap(self) -> Restore | None:
        def job(connection: apsw.Connection) -> Restore | None:
            if not rows(connection, SQL["known"]):
                return None
            return next(iter(self._open(connection)), None)

        return await self._read(job)

    async def may_be_done(self, restore: Restore, identity: bytes, generation: int, number: int) -> bool:
        def job(connection: apsw.Connection) -> bool:
            call = (micros(restore.restored_at.timestamp()), identity, generation, number)
            return bool(rows(connection, SQL["may_be_done"], call)[0]["may"])

        return await self._read(job)

    def _open(self, connection: apsw.Connection) -> list[Restore]:
        return [restore_of(row, self._rows) for row in rows(connection, SQL["open"])]
