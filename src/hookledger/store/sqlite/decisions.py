"""Retry, replay and discard on SQLite: each one transaction, audited in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import apsw

from ...identities import new_id, superseded_identity
from ...jobs import Deed
from ...ledger import Effect
from ...model import ActionRow
from ...states import BY_NAME, EffectKind, State
from ..decisions import MADE_WAY, Found, about, after_repeat, changed, in_order, refusal, stands
from ..ops.pruning import Tombstone
from ..queries import load
from ..restores import SKIPPED
from ..rows import Rows
from .connection import Run, rows

SQL = load(__package__, "decisions.sql")


class SqliteDecisions:
    def __init__(self, write: Run, now: Callable[[], int], values: Rows) -> None:
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
            return self.move(connection, now, "replay", event_id, expected, seen, actor, reason)

        run: int = await self._write(job)
        return run

    async def decide(
        self, name: Deed, event_id: UUID, expected: State, seen: int | None, actor: str, reason: str
    ) -> None:
        """What needs no more than the transition itself."""
        await self._write(lambda c: self.move(c, self._now(), name, event_id, expected, seen, actor, reason))

    def move(
        self,
        connection: apsw.Connection,
        now: int,
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
        where = (now, event_id.bytes, expected.value, seen)
        moved = rows(connection, SQL[name], (*where, reason) if name == "discard" else where)
        if not moved:
            raise refusal(event_id, name, expected, seen, self._found(connection, event_id))
        run: int = moved[0]["run"]
        about_it = [f"run {run}"] if name == "replay" else []
        subject = ", ".join([*about_it, *([part_of] if part_of else [])]) or None
        states = (expected.value, BY_NAME[name].target.value)
        note = (now, name, new_id().bytes, event_id.bytes, subject, *states, actor, reason)
        connection.execute(SQL["note"], note)
        return run

    def _repeat(self, connection: apsw.Connection, now: int, effect: Effect, decision: UUID) -> bool:
        where = (now, effect.identity, effect.fence, effect.event_id.bytes)
        if effect.kind is EffectKind.ONCE:
            aside = superseded_identity(effect.identity, decision)
            return bool(rows(connection, SQL["make_way"], (*where, aside, MADE_WAY)))
        found = rows(connection, SQL["repeat"], where)
        if found and found[0][0] > effect.generation and rows(connection, SQL["restores_known"]):
            connection.execute(SQL["skip_used"], (effect.identity, SKIPPED))
        return bool(found)

    def _found(self, connection: apsw.Connection, event_id: UUID) -> Found | Tombstone | None:
        """The event as it is now."""
        for state, run, claim, emptied in rows(connection, SQL["found"], (event_id.bytes,)):
            last = self.last_action(connection, event_id)
            return Found(State(state), run, claim, last, emptied is not None)
        for gone in rows(connection, SQL["pruned"], (event_id.bytes,)):
            return self._rows.tombstone(gone)
        return None

    def last_action(self, connection: apsw.Connection, event_id: UUID) -> ActionRow | None:
        """What was done to it last."""
        found = rows(connection, SQL["last_action"], (event_id.bytes,))
        return self._rows.action(found[0]) if found else None
