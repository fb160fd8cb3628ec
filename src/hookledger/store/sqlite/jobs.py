"""Bulk sets on SQLite. A writer blocks every ack, so a set is written in small batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import apsw

from ..ops.job import Job, NewJob, add_job, cannot_cancel, find_job
from ..ops.jobs import Jobs, query_of, set_query, size_of
from ..ops.resolving import Resolutions
from ..session import Session
from .connection import translate
from .session import SqliteDatabase, SqliteSession, finished

T = TypeVar("T")
BATCH = 500
"""Events that are frozen in one transaction: a few milliseconds."""


class SqliteJobs(Jobs):
    def __init__(self, database: SqliteDatabase, ledger: Resolutions) -> None:
        super().__init__(database, ledger)
        self._open = database.open

    async def plan(self, new: NewJob, expected: int | None) -> Job:
        """Read the snapshot on a separate connection and thread, batch by batch: a cancelled caller closes it after
        the current batch."""
        reader = ThreadPoolExecutor(1)
        connection = await _in_thread(self._open, reader)
        try:
            snapshot = SqliteSession(connection, 0)

            def begin() -> tuple[tuple[int, int | None], apsw.Cursor]:
                connection.execute("BEGIN")
                [found] = finished(snapshot.run(*set_query(snapshot, *query_of("size_of_set", new))))
                return size_of(found, new, expected), snapshot.cursor(*set_query(snapshot, *query_of("members", new)))

            size, members = await _in_thread(begin, reader)
            await self._database.write(lambda db: add_job(db, new, *size, frozen=False))
            while batch := await _in_thread(lambda: list(islice(members, BATCH)), reader):
                await self._freeze(new, batch)
            return await self._database.write(lambda db: _frozen(db, new.id))
        finally:
            await _in_thread(connection.close, reader)
            reader.shutdown(wait=False)

    async def _freeze(self, new: NewJob, batch: Sequence[tuple[Any, ...]]) -> None:
        """Of each event its id, state and claim; with an effect of it, the effect's identity and fence."""

        async def work(db: Session) -> None:
            await db("freeze", job_id=new.id, batch=batch)
            if new.resolving is not None:
                await db("freeze_unknown", job_id=new.id, batch=batch)

        await self._database.write(work)


async def _frozen(db: Session, job_id: UUID) -> Job:
    ready = await db("set_frozen", id=job_id)
    found = await find_job(db, job_id)
    if not ready or found is None:  # an operator cancelled it during the freeze
        raise cannot_cancel(job_id, found)
    return found


async def _in_thread(job: Callable[[], T], thread: ThreadPoolExecutor) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, job)
    except apsw.Error as error:
        raise translate(error) from error
