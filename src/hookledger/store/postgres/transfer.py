"""Export and import on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...errors import BadData
from ...identities import new_id
from ..queries import load
from ..transfer import TABLES, Line, Taken, arriving, is_held, met, own_identities
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "transfer.sql")


class PostgresTransfer:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections

    async def identities(self, event_ids: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
        found: dict[UUID, list[dict[str, Any]]] = {ident: [] for ident in event_ids}
        async with self._connections().use() as connection:
            for row in await connection.fetch(self._sql("identities"), list(event_ids)):
                found[row["event_id"]].append(_values("identities", row))
        return found

    async def rows(self, event_id: UUID) -> Line | None:
        line: Line = {}

        async def work(connection: Any) -> Line | None:
            async with transaction(connection, self._sql("look")):
                for table in ("events", "deliveries", "attempts", "effects", "effect_calls", "actions"):
                    rows = await connection.fetch(self._sql(table), event_id)
                    line[table] = [_values(table, row) for row in rows]
                needed = [row["request_id"] for row in line["deliveries"]]
                rows = await connection.fetch(self._sql("requests"), needed)
                line["requests"] = [_values("requests", row) for row in rows]
            return line if line["events"] else None

        return await self._connections().insist(work)

    async def take_in(self, lines: Sequence[Line], actor: str, reason: str, *, take_over: bool = False) -> Taken:
        async def work(connection: Any) -> Taken:
            done = Taken()
            async with transaction(connection, self._sql("begin")):
                for line in lines:
                    await self._take(connection, line, actor, reason, take_over, done)
            return done

        return await self._connections().insist(work)

    async def _take(
        self, connection: Any, line: Line, actor: str, reason: str, take_over: bool, done: Taken
    ) -> None:
        ident: UUID = line["events"][0]["id"]
        if await connection.fetchval(self._sql("known"), ident):
            done.known += 1
            return
        other = met(line)
        if other is not None and not await connection.fetchval(self._sql("known"), other):
            done.waiting.append(ident)
            return
        await connection.execute(self._sql("savepoint"))
        here = arriving(line, take_over)
        if not await self._own(connection, here):
            await connection.execute(self._sql("back"))
            done.taken.append(ident)
            return
        await self._insert(connection, here)
        states = (line["events"][0]["state"], here["events"][0]["state"])
        await connection.execute(self._sql("note"), new_id(), actor, reason, ident, *states)
        done.new += 1
        done.held += is_held(here)

    async def _own(self, connection: Any, line: Line) -> bool:
        """Whether its own identities are nobody's here; then they are taken."""
        own = set(own_identities(line))
        for row in sorted(line["identities"], key=lambda row: bytes(row["identity"])):
            if not await self._add(connection, "identities", row) and row["identity"] in own:
                return False
        return True

    async def _insert(self, connection: Any, line: Line) -> None:
        await connection.execute(self._sql("know_source"), line["events"][0]["source"])
        for table in ("requests", "deliveries", "attempts", "actions"):
            for row in line[table]:
                await self._add(connection, table, row)
        if not await self._add(connection, "events", line["events"][0]):
            raise BadData(f"event {line['events'][0]['id']} was made of a delivery that another event has")
        new = set()
        for row in line["effects"]:
            if await self._add(connection, "effects", row):
                new.add(row["identity"])
        for row in line["effect_calls"]:
            if row["identity"] in new:
                await self._add(connection, "effect_calls", row)

    async def _add(self, connection: Any, table: str, row: dict[str, Any]) -> bool:
        names = list(TABLES[table])
        places = ", ".join(f"${n}" for n in range(1, len(names) + 1))
        sql = self._sql("add").replace("{table}", table).replace("{names}", ", ".join(names))
        return bool(await connection.fetch(sql.replace("{values}", places), *(row[name] for name in names)))


def _values(table: str, row: Any) -> dict[str, Any]:
    return {name: row[name] for name in TABLES[table]}
