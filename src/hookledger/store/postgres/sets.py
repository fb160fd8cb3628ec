"""Bulk sets on PostgreSQL: frozen in one statement, and so of one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...filters import Filter
from ..filtering import Condition
from ..ops.job import Doubtful, Job, NewJob, Portion
from ..ops.jobs import add_job, checked, checked_effects, portion_of
from ..queries import load
from .connection import Connections, transaction
from .dialect import Dialect
from .session import BEGIN, PostgresSession, Queries

QUERIES = load(__package__, "sets.sql")
FREEZE = 600.0
"""Seconds that the one statement may take: about six for a million events on an ordinary disk."""


class PostgresSets:
    def __init__(
        self, sql: Dialect, condition: Condition, queries: Queries, connections: Callable[[], Connections]
    ) -> None:
        self._sql = sql
        self._condition = condition
        self._queries = queries
        self._connections = connections

    def _asked(self, name: str, where: Filter, *given: Any) -> tuple[str, list[Any]]:
        """A query about the events for which the filter holds; the last of the `given` is the effect's {name}."""
        condition, values = self._condition.of(where, *given)
        return self._sql(name).replace("{where}", condition).replace("{name}", f"${len(given)}"), values

    async def breakdown(self, where: Filter, effect: str | None) -> list[Portion]:
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

    async def freeze(self, new: NewJob, expected: int | None) -> Job:
        async def work(connection: Any) -> Job:
            async with transaction(connection, BEGIN):
                total, effects = await self._freeze(connection, new, expected)
                return await add_job(PostgresSession(connection, self._queries), new, total, effects, frozen=True)

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
