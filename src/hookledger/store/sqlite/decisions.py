"""Replay and discard on SQLite: each one transaction, audited in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import apsw

from ...errors import WrongState
from ...ledger import Effect
from ...model import new_id, superseded_identity
from ...retention import Tombstone
from ...states import BY_NAME, EffectKind, State
from ..decisions import MADE_WAY, Found, about, after_repeat, changed, in_order, refusal, stands
from ..queries import load
from ..rows import Rows
from .circuits import Run
from .connection import rows

SQL = load(__package__, "decisions.sql")


class SqliteDecisions:
    def __init__(self, read: Run, write: Run, now: Callable[[], int], values: Rows) -> None:
        self._read = read
        self._write = write
        self._now = now
        self._rows = values

    async def replay(
        self, event_id: UUID, expected: State, seen: int | None, repeat: Sequence[Effect], actor: str, reason: str
    ) -> int:
        effects = in_order(repeat, event_id)

        def job(connection: apsw.Connection) -> int:
            now = self._now()
            for effect in effects:
                decision = new_id()
                if not self._repeat(connection, now, effect, decision):
                    found = self._found(connection, event_id)
                    if not stands(found, expected, seen):
                        raise refusal(event_id, "replay", expected, seen, found)
                    raise changed(effect)
                states = (effect.state.value, after_repeat(effect))
                note = (now, "repeat", decision.bytes, event_id.bytes, about(effect), *states, actor, reason)
                connection.execute(SQL["note"], note)
            run = self._move(connection, now, "replay", event_id, expected, seen)
            self._note(connection, now, "replay", event_id, f"run {run}", expected, actor, reason)
            return run

        run: int = await self._write(job)
        return run

    async def discard(self, event_id: UUID, expected: State, seen: int | None, actor: str, reason: str) -> None:
        def job(connection: apsw.Connection) -> None:
            now = self._now()
            self._move(connection, now, "discard", event_id, expected, seen, reason)
            self._note(connection, now, "discard", event_id, None, expected, actor, reason)

        await self._write(job)

    async def refusal(self, event_id: UUID, name: str, expected: State) -> WrongState:
        """Why a transition was not made a moment ago."""
        found = await self._read(lambda connection: self._found(connection, event_id))
        return refusal(event_id, name, expected, None, found)

    def _move(
        self,
        connection: apsw.Connection,
        now: int,
        name: str,
        event_id: UUID,
        expected: State,
        seen: int | None,
        *more: Any,
    ) -> int:
        """The run that the event is in after it."""
        moved = rows(connection, SQL[name], (now, event_id.bytes, expected.value, seen, *more))
        if not moved:
            raise refusal(event_id, name, expected, seen, self._found(connection, event_id))
        run: int = moved[0]["run"]
        return run

    def _note(
        self,
        connection: apsw.Connection,
        now: int,
        name: str,
        event_id: UUID,
        subject: str | None,
        expected: State,
        actor: str,
        reason: str,
    ) -> None:
        states = (expected.value, BY_NAME[name].target.value)
        connection.execute(
            SQL["note"], (now, name, new_id().bytes, event_id.bytes, subject, *states, actor, reason)
        )

    def _repeat(self, connection: apsw.Connection, now: int, effect: Effect, decision: UUID) -> bool:
        where = (now, effect.identity, effect.fence, effect.event_id.bytes)
        if effect.kind is EffectKind.ONCE:
            aside = superseded_identity(effect.identity, decision)
            return bool(rows(connection, SQL["make_way"], (*where, aside, MADE_WAY)))
        return bool(rows(connection, SQL["repeat"], where))

    def _found(self, connection: apsw.Connection, event_id: UUID) -> Found | Tombstone | None:
        for state, run, claim, emptied in rows(connection, SQL["found"], (event_id.bytes,)):
            last = [self._rows.action(row) for row in rows(connection, SQL["last_action"], (event_id.bytes,))]
            return Found(State(state), run, claim, last[0] if last else None, emptied is not None)
        for gone in rows(connection, SQL["pruned"], (event_id.bytes,)):
            return self._rows.tombstone(gone)
        return None
