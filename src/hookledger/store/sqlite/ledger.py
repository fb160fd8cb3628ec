"""The effect ledger on SQLite: what was started is on disk before the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

import apsw

from ...errors import WrongState
from ...ledger import Completion, Concluded, Effect, Intent, Started
from ...states import EffectState
from ..call_outcome import Settled
from ..lanes import Turns
from ..ledger import Finish, Ledger, consequences, finish_of
from ..rows import intent_values, value_of
from ..session import Session, reads, writes
from ..text import load
from .connection import read_rows
from .intake import micros
from .session import SqliteDatabase, connection_of, part

SQL = load(__package__, "ledger.sql", effect_columns=part("effect_columns"))


class SqliteLedger(Ledger):
    def __init__(self, database: SqliteDatabase, now: Callable[[], int]) -> None:
        super().__init__(database)
        self._now = now
        self._turns = Turns()

    # ── calls ──

    @writes
    async def start(self, db: Session, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        connection, now = connection_of(db), self._now()
        return [self._start(connection, now, intent, worker) for intent in intents]

    def _start(self, connection: apsw.Connection, now: int, intent: Intent, worker: str) -> Started | Effect | None:
        new = read_rows(connection, SQL["start"], (now, worker, *_values(intent)))
        if not new:
            return self._get(connection, now, intent.identity)
        connection.execute(SQL["call"], (now, worker, *new[0]))
        return Started(intent.identity, fence=1, number=1, generation=1)

    def _get(self, connection: apsw.Connection, now: int, identity: bytes) -> Effect | None:
        found = read_rows(connection, SQL["effect"], (now, identity))
        return value_of(Effect, found[0]) if found else None

    async def _waiting(self, db: Session, news: Sequence[Settled]) -> list[tuple[UUID, Settled]]:
        connection = connection_of(db)
        return [
            (row["id"], known)
            for known in news
            for row in read_rows(connection, SQL["waiting"], (known.source, known.words))
        ]

    async def _attend(self, db: Session, attention: Collection[UUID], sent: Collection[UUID]) -> None:
        for event_id in attention:
            connection_of(db).execute(SQL["attend"], (event_id.bytes,))

    @writes
    async def finish(self, db: Session, completions: Sequence[Completion]) -> list[Concluded]:
        connection, now = connection_of(db), self._now()
        found = [self._finish(connection, now, completion) for completion in completions]
        await self.follow(db, *consequences(found))
        return [end.concluded for end in found]

    def _finish(self, connection: apsw.Connection, now: int, completion: Completion) -> Finish:
        """Record the end of a call, decide what it means, and move the effect."""
        identity = completion.identity
        effects = read_rows(connection, SQL["standing"], (identity,))
        if not effects:
            raise WrongState(f"no effect {identity.hex()}")
        end = (completion.number, completion.outcome.value, completion.error, completion.unless_ended)
        recorded = read_rows(connection, SQL["end_call"], (now, identity, *end))
        calls = read_rows(connection, SQL["calls"], (identity,)) if recorded else []
        finish = finish_of(effects[0], recorded[0] if recorded else None, calls, completion)
        if (move := finish.move) is not None:
            due_in = None if move.due_in is None else micros(move.due_in)
            moved = (now, identity, move.state.value, move.result, due_in, move.error, move.alert)
            connection.execute(SQL["move"], moved)
        return finish

    # ── the outbox ──

    @writes
    async def claim(self, db: Session, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        connection, now, taken = connection_of(db), self._now(), list[Effect]()
        while wanted:
            found = [
                self._take(connection, now, identity, worker, lease)
                for name, most, lease in wanted
                for identity in self._due(connection, now, name, most, self._turns.begin(name))
            ]
            wanted = self._turns.left(wanted, found)
            taken += found
        return taken

    def _due(self, connection: apsw.Connection, now: int, name: str, most: int, lane: str) -> list[bytes]:
        """What is due of one name, the longest due first; of the lanes, from this one on."""
        found = read_rows(connection, SQL["due"], (now, name, most))
        found += read_rows(connection, SQL["heads"], (now, name, most, lane))
        return [row["identity"] for row in sorted(found, key=itemgetter("due_at"))[:most]]

    def _take(self, connection: apsw.Connection, now: int, identity: bytes, worker: str, lease: float) -> Effect:
        connection.execute(SQL["claim"], (now, identity, worker, micros(lease)))
        # Read before the call is added: `unknown_for` is about earlier ones.
        effect = self._get(connection, now, identity)
        assert effect is not None
        if effect.state is EffectState.STARTED:
            connection.execute(SQL["call"], (now, worker, identity, effect.number, effect.generation))
        return effect

    @reads
    async def due(self, db: Session, names: Sequence[str]) -> set[str]:
        connection, now = connection_of(db), self._now()
        return {name for name in names if self._due(connection, now, name, 1, "")}


def _values(intent: Intent) -> tuple[Any, ...]:
    identity, *others = intent_values(intent, intent.event_id.bytes)
    repeat = intent.repeat.value if intent.repeat else None
    return identity, intent.kind.value, *others, repeat, intent.downstream, micros(intent.lease)
