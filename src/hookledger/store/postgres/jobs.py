"""Bulk work on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ...filters import Filter
from ...identities import id_bounds, new_id
from ...jobs import Cause, ItemOutcome, Job, JobItem, NewJob, Objection, Portion, Refusals, Resolving, Taken
from ...ledger import Effect, EffectHistory
from ...model import AttemptRow, Evidence
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
from .connection import Connections, transaction
from .dialect import Dialect
from .intake import columns
from .ledger import PostgresLedger
from .session import PostgresSession, Queries

QUERIES = load(__package__, "jobs.sql")
FREEZE = 600.0
"""Seconds that the one statement may take: about six for a million events on an ordinary disk."""


class PostgresJobs:
    def __init__(
        self,
        sql: Dialect,
        condition: Condition,
        queries: Queries,
        ledger: PostgresLedger,
        connections: Callable[[], Connections],
    ) -> None:
        self._sql = sql
        self._condition = condition
        self._queries = queries
        self._ledger = ledger
        self._connections = connections
        self._rows = Rows()

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        async with self._connections().use() as connection:
            return await connection.fetch(self._sql(name), *args)

    # ── planning ──

    def _asked(self, name: str, where: Filter, *given: Any) -> tuple[str, list[Any]]:
        """A query about the events for which the filter holds; the last of the `given` is the effect's {name}."""
        condition, values = self._condition.of(where, *given)
        return self._sql(name).replace("{where}", condition).replace("{name}", f"${len(given)}"), values

    async def breakdown(self, where: Filter, effect: str | None = None) -> list[Portion]:
        sql, values = self._asked("breakdown", where)
        if effect is not None:
            sql, values = self._asked("breakdown_doubtful", where, effect)
        async with self._connections().use() as connection:
            return [portion_of(row) for row in await connection.fetch(sql, *values, timeout=FREEZE)]

    async def doubtful(self, where: Filter, effect: str) -> Doubtful:
        sql, values = self._asked("count_doubtful", where, effect)
        async with self._connections().use() as connection:
            [row] = await connection.fetch(sql, *values, timeout=FREEZE)
            return Doubtful(row["events"], row["effects"], row["fingerprint"])

    async def plan(self, new: NewJob, expected: int | None) -> Job:
        facts = (new.id, new.name, filter_text(new.where), new.actor, new.reason, new.per_second)

        async def work(connection: Any) -> Job:
            async with transaction(connection, self._sql("begin")):
                total, effects = await self._freeze(connection, new, expected)
                args = (*facts, total, new_id(), subject(new.id), *resolved_facts(new), effects)
                row = await connection.fetchrow(self._sql("plan"), *args)
                return job_of(row, self._rows)

        return await self._connections().insist(work)

    async def _freeze(self, connection: Any, new: NewJob, expected: int | None) -> tuple[int, int | None]:
        """How many events, and how many effects if these are to be decided."""
        if new.resolving is None:
            sql, values = self._asked("freeze", new.where, new.id)
            told: str = await connection.execute(sql, *values, timeout=FREEZE)
            return checked(int(told.rsplit(" ", 1)[1]), expected), None
        sql, values = self._asked("freeze_doubtful", new.where, new.id, new.resolving.effect)
        row = await connection.fetchrow(sql, *values, timeout=FREEZE)
        found = Doubtful(row["events"], row["effects"], row["fingerprint"])
        return checked_effects(found, expected, new.resolving.effect, new.fingerprint)[:2]

    # ── running ──

    async def take(self, worker: str, lease: float, job_id: UUID | None = None) -> Taken | None:
        found = await self._fetch("take", job_id, worker, lease)
        return Taken(job_of(found[0], self._rows), found[0]["fence"]) if found else None

    async def renew(self, taken: Taken, lease: float) -> bool:
        return bool(await self._fetch("renew", taken.job.id, taken.fence, lease))

    async def release(self, taken: Taken) -> None:
        await self._fetch("renew", taken.job.id, taken.fence, None)

    async def open_items(self, taken: Taken, limit: int) -> list[JobItem]:
        found = await self._fetch("open_items", taken.job.id, taken.fence, limit)
        return [item_of(row, self._rows) for row in found]

    async def evidence(self, event_ids: Sequence[UUID]) -> list[Evidence]:
        events = await self._fetch("events", event_ids)
        attempts: dict[UUID, list[AttemptRow]] = {}
        for row in await self._fetch("attempts", event_ids):
            attempts.setdefault(row["event_id"], []).append(self._rows.attempt(row))
        effects: dict[UUID, list[EffectHistory]] = {}
        for effect in await self._ledger.of_events(event_ids):
            effects.setdefault(effect.event_id, []).append(EffectHistory(effect, ()))
        return [
            Evidence(
                self._rows.event(row),
                row["kept"],
                tuple(attempts.get(row["id"], ())),
                tuple(effects.get(row["id"], ())),
            )
            for row in events
        ]

    async def step(
        self, taken: Taken, items: Sequence[JobItem], objections: Mapping[UUID, Objection], lease: float
    ) -> Job | None:
        async def work(connection: Any) -> Job | None:
            async with transaction(connection, self._sql("begin")):
                return await self._step(connection, taken, items, objections, lease)

        return await self._connections().insist(work)

    async def _step(
        self,
        connection: Any,
        taken: Taken,
        items: Sequence[JobItem],
        objections: Mapping[UUID, Objection],
        lease: float,
    ) -> Job | None:
        ours = await connection.fetch(self._sql("hold"), taken.job.id, taken.fence)
        if not ours or (ours[0]["upto"] is not None and items[0].event_id <= ours[0]["upto"]):
            return None
        objections = {**objections, **await self._act(connection, taken.job, items, objections)}
        ended = []
        for item in items:
            objection = objections.get(item.event_id)
            cause, words = (objection.cause.value, objection.words) if objection else (None, None)
            outcome = ItemOutcome.REFUSED if objection else ItemOutcome.DONE
            ended.append((item.event_id, outcome.value, cause, words))
        bounds = (items[0].event_id, items[-1].event_id)
        told = await connection.fetch(self._sql("end_items"), taken.job.id, *columns(ended), *bounds)
        assert len(told) == len(items), "an event of the job has an outcome already"
        refused = sum(outcome == ItemOutcome.REFUSED for _, outcome, *_ in ended)
        counts = (items[-1].event_id, len(ended) - refused, refused)
        return job_of(await connection.fetchrow(self._sql("advance"), taken.job.id, *counts, lease), self._rows)

    async def _act(
        self, connection: Any, job: Job, items: Sequence[JobItem], objections: Mapping[UUID, Objection]
    ) -> dict[UUID, Objection]:
        """Move those that nothing was objected to; why the others of them could not be moved."""
        meant = [item for item in items if item.event_id not in objections]
        if not meant:
            return {}
        if job.resolving is not None:
            return await self._resolve(connection, job, job.resolving, [item.event_id for item in meant])
        events = [(item.event_id, item.state, item.claim) for item in meant]
        db = PostgresSession(connection, self._queries)
        moved = await decisions.move_all(db, job.name, events, Audit(job.actor, job.reason), part_of(job))
        found = {}
        for event in events:
            if event[0] not in moved:
                words = str(await decisions.why_not(db, job.name, event))
                found[event[0]] = Objection(Cause.CHANGED, words)
        return found

    async def _resolve(
        self, connection: Any, job: Job, resolving: Resolving, events: Sequence[UUID]
    ) -> dict[UUID, Objection]:
        """Decide the frozen effects of these events; why those of the others were not."""
        frozen: dict[UUID, dict[bytes, int]] = {event: {} for event in events}
        for row in await connection.fetch(self._sql("item_effects"), job.id, events):
            frozen[row["event_id"]][row["identity"]] = row["fence"]
        known = await self._ledger.lock_all(connection, {i for effects in frozen.values() for i in effects})
        found: dict[UUID, Objection] = {}
        meant: list[Effect] = []
        for event, effects in frozen.items():
            if objection := against(effects, known, resolving.decision):
                db = PostgresSession(connection, self._queries)
                last = await decisions.find_last_action(db, event)
                found[event] = said_by(objection, job, last)
            else:
                meant += [known[identity] for identity in effects]
        by = (job.actor, job.reason, part_of(job))
        await self._ledger.resolve_all(connection, meant, resolving.decision, None, *by)
        return found

    # ── operating ──

    async def cancel(self, job_id: UUID, actor: str, reason: str) -> Job:
        async def work(connection: Any) -> Job:
            async with transaction(connection, self._sql("begin")):
                args = (job_id, new_id(), actor, reason, subject(job_id))
                row = await connection.fetchrow(self._sql("cancel"), *args)
                if row is None:
                    found = await connection.fetchrow(self._sql("job"), job_id)
                    raise cannot_cancel(job_id, job_of(found, self._rows) if found else None)
                return job_of(row, self._rows)

        return await self._connections().insist(work)

    async def jobs(self, *, before: UUID | None = None, limit: int = 50) -> list[Job]:
        return [job_of(row, self._rows) for row in await self._fetch("jobs", before, limit)]

    async def find(self, reference: str) -> list[UUID]:
        bounds = id_bounds(reference)
        return [row["id"] for row in await self._fetch("find", *bounds)] if bounds else []

    async def job(self, job_id: UUID) -> Job | None:
        found = await self._fetch("job", job_id)
        return job_of(found[0], self._rows) if found else None

    async def refusals(self, job_id: UUID) -> list[Refusals]:
        return [refusals_of(row) for row in await self._fetch("refusals", job_id)]

    async def items(
        self, job_id: UUID, *, outcome: ItemOutcome | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[JobItem]:
        if outcome is ItemOutcome.REFUSED:
            found = await self._fetch("refused_items", job_id, after, limit)
        else:
            found = await self._fetch("items", job_id, after, outcome.value if outcome else None, limit)
        return [shown_item_of(row, self._rows) for row in found]
