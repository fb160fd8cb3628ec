"""Comparisons with a provider's log, and repairs, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ...identities import new_id
from ...model import Arrival, Recorded
from ...reconciling import Begun, Counts, Known, Reconciliation
from ...states import State
from ..queries import load
from ..reconciling import INTERRUPTED, OPEN, how_far, result, still_open, taken_up, with_recorded
from ..rows import Rows
from .connection import Connections, transaction
from .dialect import Dialect
from .intake import by_arrival, record_inside

QUERIES = load(__package__, "reconciling.sql")


class PostgresReconciling:
    """`store`: the store's own queries."""

    def __init__(self, sql: Dialect, store: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._store = store
        self._connections = connections
        self._rows = Rows()

    async def known(self, identities: Sequence[bytes]) -> dict[bytes, Known]:
        async with self._connections().use() as connection:
            found = await connection.fetch(self._sql("known"), list(identities))
        return {identity: Known(event, State(state) if state else None) for identity, event, state in found}

    async def begin(
        self,
        source: str,
        since: datetime,
        until: datetime,
        actor: str,
        reason: str,
        *,
        lease: float,
        slot: datetime | None = None,
    ) -> Begun | None:
        values = (new_id(), source, slot, since, until, actor, reason, lease)

        async def work(connection: Any) -> Begun | None:
            async with transaction(connection, self._sql("begin")):
                await self._close_abandoned(connection, source, slot)
                row = await connection.fetchrow(self._sql("begin_run"), *values)
                if row is None:
                    return None
                subject = f"source:{source}"
                await self._note(connection, "reconcile", actor, reason, None, subject, "", "started")
                return Begun(row["id"], source, row["fence"], row["since"], row["until"])

        return await self._connections().insist(work)

    async def _close_abandoned(self, connection: Any, source: str, slot: datetime | None) -> None:
        for row in await connection.fetch(self._sql("abandoned"), source):
            counts, words = how_far(row["counts"])
            if row["slot"] is None or row["slot"] != slot:  # else it is taken up
                await connection.execute(self._sql("close"), row["id"], INTERRUPTED, counts)
            about = (None, f"source:{source}", "started", words)
            await self._note(connection, "reconcile", row["actor"], row["reason"], *about)

    async def record(self, begun: Begun, arrivals: Sequence[Arrival], counts: Counts) -> list[list[Recorded]]:
        async def work(connection: Any) -> list[list[Recorded]]:
            async with transaction(connection, self._sql("begin")):
                results = by_arrival(arrivals, await record_inside(connection, self._store, arrivals))
                now = with_recorded(counts, results)
                if not await connection.fetch(self._sql("count"), begun.id, begun.fence, now):
                    raise taken_up(begun)
                return results

        return await self._connections().insist(work)

    async def renew(self, begun: Begun, lease: float) -> bool:
        async with self._connections().use() as connection:
            return bool(await connection.fetch(self._sql("renew"), begun.id, begun.fence, lease))

    async def end(
        self, begun: Begun, counts: Counts, problem: str | None = None, *, again_in: float | None = None
    ) -> bool:
        values = (begun.id, begun.fence, msgspec.json.encode(counts).decode(), problem, again_in)

        async def work(connection: Any) -> bool:
            async with transaction(connection, self._sql("begin")):
                row = await connection.fetchrow(self._sql("end"), *values)
                if row is not None:
                    about = (None, f"source:{begun.source}", "started", result(counts, problem))
                    await self._note(connection, "reconcile", row["actor"], row["reason"], *about)
                return row is not None

        return await self._connections().insist(work)

    async def last(self) -> list[Reconciliation]:
        async with self._connections().use() as connection:
            return [self._rows.reconciliation(row) for row in await connection.fetch(self._sql("last"))]

    async def repair(self, arrival: Arrival, about: UUID | None, actor: str, reason: str) -> UUID:
        [item], [event_id] = arrival.items, arrival.event_ids
        assert item.object_id is not None, "a repair is of an object"
        thing = (arrival.source, item.object_id)

        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                await connection.execute(self._sql("claim_object"), *thing, event_id)
                known = await connection.fetchval(self._sql("lock_object"), *thing)
                if known != event_id:
                    state = await connection.fetchval(self._sql("state"), known)
                    if state in OPEN:
                        raise still_open(thing[1], known, state)
                    await connection.execute(self._sql("repair_object"), *thing, event_id)
                await record_inside(connection, self._store, [arrival])
                subject = f"event {about}" if about else f"object {thing[1]}"
                await self._note(connection, "repair", actor, reason, event_id, subject, "", "pending")
                if about is not None:
                    state = await connection.fetchval(self._sql("state"), about) or ""
                    subject = f"repair {event_id}"
                    await self._note(connection, "repair", actor, reason, about, subject, state, state)

        await self._connections().insist(work)
        return event_id

    async def _note(
        self,
        connection: Any,
        name: str,
        actor: str,
        reason: str,
        event_id: UUID | None,
        subject: str,
        before: str,
        after: str,
    ) -> None:
        values = (new_id(), name, actor, reason, event_id, subject, before, after)
        await connection.execute(self._sql("note_action"), *values)
