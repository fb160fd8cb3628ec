"""Bulk sets on SQLite. A writer blocks every ack, so a set is written in small batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw

from ...filters import Filter
from ..filtering import Condition
from ..ops.job import Doubtful, Job, NewJob, Portion
from ..ops.jobs import add_job, cannot_cancel, checked, checked_effects, find_job, portion_of
from ..queries import load
from ..session import Session
from .connection import Row, Run, connect, rows, translate
from .session import SqliteDatabase, connection_of

T = TypeVar("T")
SQL = load(__package__, "sets.sql")
BATCH = 500
"""Events that are frozen in one transaction: a few milliseconds."""


class SqliteSets:
    def __init__(
        self, path: Path, condition: Condition, database: SqliteDatabase, write: Run, now: Callable[[], int]
    ) -> None:
        self._path = path
        self._condition = condition
        self._database = database
        self._write = write
        self._now = now

    def _asked(self, name: str, where: Filter, effect: str | None = None) -> tuple[str, list[Any]]:
        """A query about the events for which the filter holds, and about their effects of this {name}."""
        condition, values = self._condition.of(where, *([effect] if effect is not None else []))
        return SQL[name].replace("{where}", condition).replace("{name}", "?1"), values

    async def _look(self, name: str, where: Filter, effect: str | None) -> list[Row]:
        sql, values = self._asked(name, where, effect)

        def look() -> list[Row]:
            with closing(connect(self._path, wait=5.0)) as connection:
                return rows(connection, sql, values)

        return await _in_thread(look)

    async def breakdown(self, where: Filter, effect: str | None) -> list[Portion]:
        name = "breakdown" if effect is None else "breakdown_doubtful"
        return [portion_of(row) for row in await self._look(name, where, effect)]

    async def doubtful(self, where: Filter, effect: str) -> Doubtful:
        [row] = await self._look("count_doubtful", where, effect)
        return _doubtful(row)

    async def freeze(self, new: NewJob, expected: int | None) -> Job:
        """The snapshot is read on a connection and in a thread of its own, a batch at a time: whoever gives up in the
        middle closes it after what is being read."""
        effect = new.resolving.effect if new.resolving else None
        kind = "" if effect is None else "_doubtful"
        reader = ThreadPoolExecutor(1)
        snapshot = await _in_thread(lambda: connect(self._path, wait=5.0), reader)
        try:

            def begin() -> tuple[Row, Iterator[Any]]:
                snapshot.execute(SQL["begin"])
                [found] = rows(snapshot, *self._asked(f"count{kind}", new.where, effect))
                return found, iter(snapshot.execute(*self._asked(f"snapshot{kind}", new.where, effect)))

            found, events = await _in_thread(begin, reader)
            total, effects = _size(found, new, expected)
            await self._database.write(lambda db: add_job(db, new, total, effects, frozen=False))
            while batch := await _in_thread(lambda: list(islice(events, BATCH)), reader):
                await self._freeze(new.id, batch)
            return await self._database.write(lambda db: self._frozen(db, new.id))
        finally:
            await _in_thread(snapshot.close, reader)
            reader.shutdown(wait=False)

    async def _freeze(self, job_id: UUID, batch: Sequence[tuple[Any, ...]]) -> None:
        """Of each event its id, state and claim; with an effect of it, the effect's identity and fence."""

        def job(connection: apsw.Connection) -> None:
            if len(batch[0]) == 3:
                connection.executemany(SQL["freeze"], [(job_id.bytes, *event) for event in batch])
                return
            for ident, state, claim, identity, fence in batch:
                connection.execute(SQL["freeze_once"], (job_id.bytes, ident, state, claim))
                connection.execute(SQL["freeze_effect"], (job_id.bytes, ident, identity, fence))

        await self._write(job)

    async def _frozen(self, db: Session, job_id: UUID) -> Job:
        ready = rows(connection_of(db), SQL["frozen"], (self._now(), job_id.bytes))
        found = await find_job(db, job_id)
        if not ready or found is None:  # somebody cancelled it while it was being frozen
            raise cannot_cancel(job_id, found)
        return found


def _size(found: Row, new: NewJob, expected: int | None) -> tuple[int, int | None]:
    """How many events, and how many effects if these are to be decided."""
    if new.resolving is None:
        return checked(found["n"], expected), None
    return checked_effects(_doubtful(found), expected, new.resolving.effect, new.fingerprint)[:2]


def _doubtful(row: Row) -> Doubtful:
    return Doubtful(row["events"], row["effects"], sha256(row["calls"].encode()).hexdigest()[:16])


async def _in_thread(job: Callable[[], T], thread: ThreadPoolExecutor | None = None) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, job)
    except apsw.Error as error:
        raise translate(error) from error
