"""The heartbeat on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import apsw

from ...model import Handled
from ..ops.workers import register
from .connection import connect, in_transaction, translate
from .files import Connection
from .intake import micros
from .session import SqliteSession, finished
from .watch import HEARTBEAT, LockWatch


class SqliteHeartbeat:
    """The heartbeat's own connection, on the heartbeat's own thread."""

    def __init__(
        self,
        path: Path,
        sql: Callable[[str], str],
        now: Callable[[], int],
        who: tuple[str, Handled | None],
        patience: float,
        watch: LockWatch,
    ) -> None:
        """`who`: the worker, and what it handles; None: it is not registered."""
        self._path = path
        self._sql = sql
        self._now = now
        self._who = who
        self._patience = patience
        self._watch = watch
        self._connection: Connection | None = None

    async def beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        try:
            self._connection = self._connection or connect(self._path, wait=self._patience)
            now = self._now()

            def job(connection: apsw.Connection) -> set[UUID]:
                finished(register(SqliteSession(connection, now), *self._who))
                values = [(now, ident.bytes, claim, micros(lease)) for ident, claim in claims]
                return {UUID(bytes=row[0]) for row in connection.executemany(self._sql("beat"), values)}

            return in_transaction(self._connection, job, self._watch, HEARTBEAT)
        except apsw.Error as error:
            raise translate(error) from error

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
