"""The heartbeat on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import apsw

from .connection import connect, in_transaction, translate
from .files import Connection
from .intake import micros
from .watch import PULSE, LockWatch


class SqlitePulse:
    """The heartbeat's own connection, on the heartbeat's own thread."""

    def __init__(
        self,
        path: Path,
        sql: Callable[[str], str],
        now: Callable[[], int],
        who: tuple[str, str],
        patience: float,
        watch: LockWatch,
    ) -> None:
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
                # Registered anew each time: whoever was away for long may have been forgotten.
                connection.execute(self._sql("register"), (now, *self._who))
                values = [(now, ident.bytes, claim, micros(lease)) for ident, claim in claims]
                return {UUID(bytes=row[0]) for row in connection.executemany(self._sql("beat"), values)}

            return in_transaction(self._connection, job, self._watch, PULSE)
        except apsw.Error as error:
            raise translate(error) from error

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
