"""Retry, replay and discard on PostgreSQL: each one transaction, audited in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...errors import WrongState
from ...identities import new_id, superseded_identity
from ...jobs import Deed
from ...ledger import Effect
from ...model import ActionRow
from ...states import EffectKind, State
from ..decisions import MADE_WAY, Found, about, after_repeat, changed, in_order, refusal, stands
from ..ops.pruning import Tombstone
from ..queries import load
from ..restores import SKIPPED
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
                return await self.move(connection, "replay", event_id, expected, seen, actor, reason)

        return await self._connections().insist(work)

    async def decide(
        self, name: Deed, event_id: UUID, expected: State, seen: int | None, actor: str, reason: str
    ) -> None:
        """What needs no more than the transition itself."""

        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                await self.move(connection, name, event_id, expected, seen, actor, reason)

        await self._connections().insist(work)

    async def move(
        self,
        connection: Any,
        name: Deed,
        event_id: UUID,
        expected: State,
        seen: int | None,
        actor: str,
        reason: str,
        part_of: str | None = None,
    ) -> int:
        """In the caller's transaction: the transition and its audit row, which names what it is `part_of`.

        Returns the run that the event is in after it; raises WrongState, after which the transaction can go on.
        """
        runs = await self.move_all(connection, name, [(event_id, expected, seen)], actor, reason, part_of)
        if event_id not in runs:
            raise await self.refusal(connection, name, event_id, expected, seen)
        return runs[event_id]

    async def move_all(
        self,
        connection: Any,
        name: Deed,
        events: Sequence[tuple[UUID, State, int | None]],
        actor: str,
        reason: str,
        part_of: str | None = None,
    ) -> dict[UUID, int]:
        """The same for several events in one statement, in the order of their ids; what comes back was moved."""
        ids, states, seen = zip(*((ident, state.value, claim) for ident, state, claim in events), strict=True)
        notes = [new_id() for _ in events]
        rows = await connection.fetch(self._sql(name), ids, states, seen, notes, actor, reason, part_of)
        return {row["id"]: row["run"] for row in rows}

    async def refusal(
        self, connection: Any, name: Deed, event_id: UUID, expected: State, seen: int | None
    ) -> WrongState:
        """Why an event was not moved."""
        return refusal(event_id, name, expected, seen, await self._found(connection, event_id))

    async def _repeat(self, connection: Any, effect: Effect, decision: UUID) -> bool:
        where = (effect.identity, effect.fence, effect.event_id)
        if effect.kind is EffectKind.ONCE:
            aside = superseded_identity(effect.identity, decision)
            return bool(await connection.fetch(self._sql("make_way"), *where, aside, MADE_WAY))
        found = await connection.fetchval(self._sql("repeat"), *where)
        if found is not None and found > effect.generation and await connection.fetchval(self._sql("restores_known")):
            await connection.execute(self._sql("skip_used"), effect.identity, SKIPPED)
        return found is not None

    async def _found(self, connection: Any, event_id: UUID) -> Found | Tombstone | None:
        """The event as it is now."""
        row = await connection.fetchrow(self._sql("found"), event_id)
        if row is None:
            gone = await connection.fetchrow(self._sql("pruned"), event_id)
            return self._rows.tombstone(gone) if gone else None
        last = await self.last_action(connection, event_id)
        return Found(State(row["state"]), row["run"], row["claim"], last, row["emptied_at"] is not None)

    async def last_action(self, connection: Any, event_id: UUID) -> ActionRow | None:
        """What was done to it last."""
        row = await connection.fetchrow(self._sql("last_action"), event_id)
        return self._rows.action(row) if row else None
