"""Replay and discard on PostgreSQL: each one transaction, audited in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...errors import WrongState
from ...ledger import Effect
from ...model import new_id, superseded_identity
from ...retention import Tombstone
from ...states import EffectKind, State
from ..decisions import MADE_WAY, Found, about, after_repeat, changed, in_order, refusal, stands
from ..queries import load
from ..rows import Rows
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "decisions.sql")


class PostgresDecisions:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections
        self._rows = Rows()

    async def replay(
        self, event_id: UUID, expected: State, seen: int | None, repeat: Sequence[Effect], actor: str, reason: str
    ) -> int:
        effects = in_order(repeat, event_id)

        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                for effect in effects:
                    decision = new_id()
                    if not await self._repeat(connection, effect, decision):
                        found = await self._found(connection, event_id)
                        if not stands(found, expected, seen):
                            raise refusal(event_id, "replay", expected, seen, found)
                        raise changed(effect)
                    states = (effect.state.value, after_repeat(effect))
                    note = (decision, actor, reason, event_id, about(effect), *states)
                    await connection.execute(self._sql("note_repeat"), *note)
                return await self._move(connection, "replay", event_id, expected, seen, actor, reason)

        return await self._connections().insist(work)

    async def discard(self, event_id: UUID, expected: State, seen: int | None, actor: str, reason: str) -> None:
        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                await self._move(connection, "discard", event_id, expected, seen, actor, reason)

        await self._connections().insist(work)

    async def refusal(self, event_id: UUID, name: str, expected: State) -> WrongState:
        """Why a transition was not made a moment ago."""
        async with self._connections().use() as connection:
            return refusal(event_id, name, expected, None, await self._found(connection, event_id))

    async def _move(
        self, connection: Any, name: str, event_id: UUID, expected: State, seen: int | None, actor: str, reason: str
    ) -> int:
        """The run that the event is in after it."""
        args = (event_id, expected.value, seen, new_id(), actor, reason)
        run: int | None = await connection.fetchval(self._sql(name), *args)
        if run is None:
            raise refusal(event_id, name, expected, seen, await self._found(connection, event_id))
        return run

    async def _repeat(self, connection: Any, effect: Effect, decision: UUID) -> bool:
        where = (effect.identity, effect.fence, effect.event_id)
        if effect.kind is EffectKind.ONCE:
            aside = superseded_identity(effect.identity, decision)
            return bool(await connection.fetch(self._sql("make_way"), *where, aside, MADE_WAY))
        return bool(await connection.fetch(self._sql("repeat"), *where))

    async def _found(self, connection: Any, event_id: UUID) -> Found | Tombstone | None:
        row = await connection.fetchrow(self._sql("found"), event_id)
        if row is None:
            gone = await connection.fetchrow(self._sql("pruned"), event_id)
            return self._rows.tombstone(gone) if gone else None
        last = await connection.fetchrow(self._sql("last_action"), event_id)
        action = self._rows.action(last) if last else None
        return Found(State(row["state"]), row["run"], row["claim"], action, row["emptied_at"] is not None)
