"""Erasure on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...errors import WrongState
from ...identities import new_id
from ...retention import Erased
from ...states import EffectKind, EffectState, State
from ..erasure import Finished, Left, check, check_effects, check_finished, check_others, key_left, reason_left
from ..queries import load
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "erasure.sql")


class PostgresErasure:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections

    async def erase(
        self,
        event_id: UUID,
        expected: State,
        seen: int,
        actor: str,
        reason: str,
        *,
        key_too: bool = False,
        whole_request: bool = False,
        dry: bool = False,
    ) -> Erased:
        async def work(connection: Any) -> Erased:
            async with transaction(connection, self._sql("begin")):
                requests, _ = await self._together(connection, event_id, whole_request)
                await connection.execute(self._sql("lock_odd"), requests)
                requests, idents = await self._together(connection, event_id, whole_request)
                effects = await connection.fetch(self._sql("lock_effects"), idents)
                rows = await connection.fetch(self._sql("lock_events"), idents)
                events = {row["id"]: Finished(row["id"], State(row["state"]), *row[2:]) for row in rows}
                check(events.get(event_id), event_id, expected, seen)
                for event in events.values():
                    check_finished(event)
                    check_effects(event.id, [_left(row) for row in effects if row["event_id"] == event.id])
                tried = 0
                if not dry:
                    tried = await self._empty(connection, list(events.values()), requests, key_too)
                    await self._empty_effects(connection, effects, key_too)
                    for event in events.values():
                        note = (new_id(), actor, reason, event.id, event.state.value)
                        await connection.execute(self._sql("note"), *note)
                return Erased(tuple(events), len(requests), len(effects), tried)

        return await self._connections().insist(work)

    async def _together(self, connection: Any, event_id: UUID, whole: bool) -> tuple[list[UUID], list[UUID]]:
        """The requests that are to be emptied, and the events that these brought."""
        idents, requests = {event_id}, set[UUID]()
        while True:
            found = {row[0] for row in await connection.fetch(self._sql("requests"), list(idents))}
            brought = {row[0] for row in await connection.fetch(self._sql("brought"), list(found))}
            met = {row[0] for row in await connection.fetch(self._sql("met"), list(found))}
            check_others(event_id, sorted((brought | met) - idents - {event_id}), whole)
            if found == requests and brought <= idents:
                return sorted(requests), sorted(idents)
            requests, idents = found, idents | brought

    async def _empty(
        self, connection: Any, events: Sequence[Finished], requests: list[UUID], key_too: bool
    ) -> int:
        idents = [event.id for event in events]
        await connection.execute(self._sql("forget_refused"), requests)
        await connection.execute(self._sql("empty_requests"), requests)
        await connection.execute(self._sql("forget_repairs"), idents)
        for event in events:
            values = (event.id, reason_left(event), key_left(event.key, key_too))
            await connection.execute(self._sql("empty_event"), *values)
        if key_too:
            await connection.execute(self._sql("empty_deliveries"), idents, requests)
        await connection.execute(self._sql("empty_items"), idents)
        status: str = await connection.execute(self._sql("empty_attempts"), idents)
        return int(status.rsplit(maxsplit=1)[-1])

    async def _empty_effects(self, connection: Any, effects: Sequence[Any], key_too: bool) -> None:
        for row in effects:
            await connection.execute(self._sql("empty_effect"), row["identity"], key_left(row["key"], key_too))
        await connection.execute(self._sql("empty_calls"), [row["identity"] for row in effects])
        if effects and await connection.fetchval(self._sql("keeps_replaced")):
            await connection.execute(self._sql("empty_actions"), sorted({row["event_id"] for row in effects}))
        if lanes := [(row["name"], row["lane"]) for row in effects if row["lane"] is not None]:
            held = await connection.fetch(self._sql("lock_lanes"), *map(list, zip(*lanes, strict=True)))
            if held:
                await connection.execute(self._sql("forget_lanes"), *map(list, zip(*held, strict=True)))

    async def erase_effects(self, event_id: UUID, actor: str, reason: str, *, key_too: bool = False) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                effects = await connection.fetch(self._sql("lock_effects"), [event_id])
                state = await connection.fetchval(self._sql("was"), event_id)
                if state is None:
                    raise WrongState(f"event {event_id} was not pruned")
                await self._empty_effects(connection, effects, key_too)
                await connection.execute(self._sql("empty_items"), [event_id])
                await connection.execute(self._sql("note"), new_id(), actor, reason, event_id, state)
                return len(effects)

        return await self._connections().insist(work)


def _left(row: Any) -> Left:
    return Left(f"{row['name']}:{row['key']}", EffectKind(row["kind"]), EffectState(row["state"]))
