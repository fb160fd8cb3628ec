"""Bulk work on SQLite. A writer blocks every ack, so whatever is written here is written in small batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw

from ...filters import Filter
from ...identities import id_bounds, new_id
from ...jobs import Cause, ItemOutcome, Job, JobItem, NewJob, Objection, Portion, Refusals, Resolving, Taken
from ...model import Evidence
from ..filtering import Condition
from ..jobs import (
    Doubtful,
    against,
    cannot_cancel,
    checked,
    checked_effects,
    filter_text,
    item_of,
    job_of,
    part_of,
    portion_of,
    refusals_of,
    resolved_facts,
    said_by,
    shown_item_of,
    subject,
)
from ..ops import decisions
from ..ops.audit import Audit
from ..queries import load
from ..rows import Rows
from .connection import Row, Run, connect, rows, translate
from .intake import micros
from .ledger import SqliteLedger
from .session import SqliteSession, finished

T = TypeVar("T")
SQL = load(__package__, "jobs.sql")
BATCH = 500
"""Events that are frozen in one transaction: a few milliseconds."""


class SqliteJobs:
    """`events`: the store's own queries."""

    def __init__(
        self,
        path: Path,
        events: Callable[[str], str],
        condition: Condition,
        ledger: SqliteLedger,
        read: Run,
        write: Run,
        now: Callable[[], int],
        values: Rows,
    ) -> None:
        self._path = path
        self._events = events
        self._condition = condition
        self._ledger = ledger
        self._read = read
        self._write = write
        self._now = now
        self._rows = values

    async def _fetch(self, name: str, *args: Any) -> list[Row]:
        return await self._read(lambda connection: rows(connection, SQL[name], args))

    # ── planning ──

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

    async def breakdown(self, where: Filter, effect: str | None = None) -> list[Portion]:
        name = "breakdown" if effect is None else "breakdown_doubtful"
        return [portion_of(row) for row in await self._look(name, where, effect)]

    async def doubtful(self, where: Filter, effect: str) -> Doubtful:
        [row] = await self._look("count_doubtful", where, effect)
        return _doubtful(row)

    async def plan(self, new: NewJob, expected: int | None) -> Job:
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
            if effect is None:
                await self._make(new, checked(found["n"], expected), None)
            else:
                doubtful = checked_effects(_doubtful(found), expected, effect, new.fingerprint)
                await self._make(new, doubtful.events, doubtful.effects)
            while batch := await _in_thread(lambda: list(islice(events, BATCH)), reader):
                await self._freeze(new.id, batch)
            return await self._frozen(new.id)
        finally:
            await _in_thread(snapshot.close, reader)
            reader.shutdown(wait=False)

    async def _make(self, new: NewJob, total: int, effects: int | None) -> None:
        def job(connection: apsw.Connection) -> None:
            now, who = self._now(), (new.actor, new.reason)
            facts = (new.id.bytes, new.name, filter_text(new.where), *who, new.per_second, total)
            connection.execute(SQL["plan"], (now, *facts, *resolved_facts(new), effects))
            note = (now, f"bulk {new.name}", new_id().bytes, subject(new.id), "absent", "planned", *who)
            connection.execute(SQL["note"], note)

        await self._write(job)

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

    async def _frozen(self, job_id: UUID) -> Job:
        def job(connection: apsw.Connection) -> Job:
            now = self._now()
            ready = rows(connection, SQL["frozen"], (now, job_id.bytes))
            found = self._one(connection, now, job_id)
            if not ready or found is None:  # somebody cancelled it while it was being frozen
                raise cannot_cancel(job_id, found)
            return found

        return await self._write(job)

    def _one(self, connection: apsw.Connection, now: int, job_id: UUID) -> Job | None:
        found = rows(connection, SQL["job"], (now, job_id.bytes))
        return job_of(found[0], self._rows) if found else None

    # ── running ──

    async def take(self, worker: str, lease: float, job_id: UUID | None = None) -> Taken | None:
        wanted = job_id.bytes if job_id else None
        if not await self._fetch("free", self._now(), wanted):
            return None  # most looks find nothing, and need no write lock

        def job(connection: apsw.Connection) -> Taken | None:
            now = self._now()
            free = rows(connection, SQL["free"], (now, wanted))
            if not free:
                return None
            connection.execute(SQL["take"], (now, free[0]["id"], worker, micros(lease)))
            [row] = rows(connection, SQL["job"], (now, free[0]["id"]))
            return Taken(job_of(row, self._rows), row["fence"])

        return await self._write(job)

    async def renew(self, taken: Taken, lease: float) -> bool:
        return await self._renew(taken, micros(lease))

    async def release(self, taken: Taken) -> None:
        await self._renew(taken, None)

    async def _renew(self, taken: Taken, lease: int | None) -> bool:
        args = (self._now(), taken.job.id.bytes, taken.fence, lease)
        return bool(await self._write(lambda connection: rows(connection, SQL["renew"], args)))

    async def open_items(self, taken: Taken, limit: int) -> list[JobItem]:
        found = await self._fetch("open_items", taken.job.id.bytes, taken.fence, limit)
        return [item_of(row, self._rows) for row in found]

    async def evidence(self, event_ids: Sequence[UUID]) -> list[Evidence]:
        def look(connection: apsw.Connection, event_id: UUID) -> Evidence | None:
            found = rows(connection, self._events("event"), (event_id.bytes,))
            if not found:
                return None
            event = self._rows.event(found[0])
            [(kept,)] = rows(connection, SQL["kept"], (event.request_id.bytes,))
            attempts = rows(connection, self._events("attempts"), (event_id.bytes,))
            effects = self._ledger.effects_of(connection, event_id)
            return Evidence(event, bool(kept), tuple(map(self._rows.attempt, attempts)), effects)

        def job(connection: apsw.Connection) -> list[Evidence]:
            found = (look(connection, event_id) for event_id in event_ids)
            return [one for one in found if one is not None]

        return await self._read(job)

    async def step(
        self, taken: Taken, items: Sequence[JobItem], objections: Mapping[UUID, Objection], lease: float
    ) -> Job | None:
        def job(connection: apsw.Connection) -> Job | None:
            now, job_id = self._now(), taken.job.id
            ours = rows(connection, SQL["hold"], (job_id.bytes, taken.fence))
            if not ours or (ours[0]["upto"] is not None and items[0].event_id.bytes <= ours[0]["upto"]):
                return None
            refused = 0
            for item in items:
                objection = objections.get(item.event_id) or self._act(connection, now, taken.job, item)
                refused += objection is not None
                self._end(connection, now, job_id, item, objection)
            counts = (items[-1].event_id.bytes, len(items) - refused, refused)
            connection.execute(SQL["advance"], (now, job_id.bytes, *counts, micros(lease)))
            return self._one(connection, now, job_id)

        return await self._write(job)

    def _act(self, connection: apsw.Connection, now: int, job: Job, item: JobItem) -> Objection | None:
        if job.resolving is not None:
            return self._resolve(connection, now, job, job.resolving, item.event_id)
        db, event = SqliteSession(connection, now), (item.event_id, item.state, item.claim)
        by = Audit(job.actor, job.reason)
        if finished(decisions.move_all(db, job.name, [event], by, part_of(job))):
            return None
        return Objection(Cause.CHANGED, str(finished(decisions.why_not(db, job.name, event))))

    def _resolve(
        self, connection: apsw.Connection, now: int, job: Job, resolving: Resolving, event_id: UUID
    ) -> Objection | None:
        """Decide the frozen effects of this event; why they were not."""
        found = rows(connection, SQL["item_effects"], (job.id.bytes, event_id.bytes))
        frozen = {row["identity"]: row["fence"] for row in found}
        known = self._ledger.get_all(connection, now, frozen)
        if objection := against(frozen, known, resolving.decision):
            last = decisions.find_last_action(SqliteSession(connection, now), event_id)
            return said_by(objection, job, finished(last))
        effects, by = [known[identity] for identity in frozen], (job.actor, job.reason, part_of(job))
        self._ledger.resolve_all(connection, now, effects, resolving.decision, None, *by)
        return None

    def _end(
        self, connection: apsw.Connection, now: int, job_id: UUID, item: JobItem, objection: Objection | None
    ) -> None:
        outcome = ItemOutcome.REFUSED if objection else ItemOutcome.DONE
        cause, words = (objection.cause.value, objection.words) if objection else (None, None)
        args = (now, job_id.bytes, item.event_id.bytes, outcome.value, cause, words)
        assert rows(connection, SQL["end_item"], args), "an event of the job has an outcome already"

    # ── operating ──

    async def cancel(self, job_id: UUID, actor: str, reason: str) -> Job:
        def job(connection: apsw.Connection) -> Job:
            now = self._now()
            before = self._one(connection, now, job_id)
            if before is None or not before.unfinished:
                raise cannot_cancel(job_id, before)
            connection.execute(SQL["cancel"], (now, job_id.bytes, actor, reason))
            states = (before.state.value, "cancelled")
            note = (now, "cancel-job", new_id().bytes, subject(job_id), *states, actor, reason)
            connection.execute(SQL["note"], note)
            after = self._one(connection, now, job_id)
            assert after is not None
            return after

        return await self._write(job)

    async def jobs(self, *, before: UUID | None = None, limit: int = 50) -> list[Job]:
        found = await self._fetch("jobs", self._now(), before.bytes if before else None, limit)
        return [job_of(row, self._rows) for row in found]

    async def find(self, reference: str) -> list[UUID]:
        bounds = id_bounds(reference)
        found = await self._fetch("find", bounds[0].bytes, bounds[1].bytes) if bounds else []
        return [self._rows.ident(row["id"]) for row in found]

    async def job(self, job_id: UUID) -> Job | None:
        return await self._read(lambda connection: self._one(connection, self._now(), job_id))

    async def refusals(self, job_id: UUID) -> list[Refusals]:
        return [refusals_of(row) for row in await self._fetch("refusals", job_id.bytes)]

    async def items(
        self, job_id: UUID, *, outcome: ItemOutcome | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[JobItem]:
        place = after.bytes if after else None
        if outcome is ItemOutcome.REFUSED:
            found = await self._fetch("refused_items", job_id.bytes, place, limit)
        else:
            found = await self._fetch("items", job_id.bytes, place, outcome.value if outcome else None, limit)
        return [shown_item_of(row, self._rows) for row in found]


def _doubtful(row: Row) -> Doubtful:
    return Doubtful(row["events"], row["effects"], sha256(row["calls"].encode()).hexdigest()[:16])


async def _in_thread(job: Callable[[], T], thread: ThreadPoolExecutor | None = None) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, job)
    except apsw.Error as error:
        raise translate(error) from error
