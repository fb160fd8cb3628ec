"""The effect ledger on SQLite: what was started is on disk before the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

import apsw

from ...errors import WrongState
from ...ledger import Completion, Concluded, Effect, Intent, Started
from ...states import EffectState, State
from ..call_outcome import (
    Settled,
    apply_outcome,
    calls_for_attention,
    is_known,
    settled,
    settles_unknown,
)
from ..lanes import Turns
from ..ledger import Ledger
from ..ops.audit import Audit
from ..ops.decisions import move_all
from ..ops.resolving import NO_EVENTS
from ..queries import load
from ..rows import Rows, standing, told
from ..session import Session
from .connection import Row, Run, rows
from .intake import micros
from .session import SqliteDatabase, SqliteSession, connection_of, finished, part

SQL = load(__package__, "ledger.sql", effect_columns=part("effect_columns"))


class SqliteLedger(Ledger):
    def __init__(self, database: SqliteDatabase, read: Run, write: Run, now: Callable[[], int], values: Rows) -> None:
        super().__init__(database)
        self._read = read
        self._write = write
        self._now = now
        self._rows = values
        self._turns = Turns()

    # ── calls ──

    async def start(self, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        def job(connection: apsw.Connection) -> list[Started | Effect | None]:
            now = self._now()
            return [self._start(connection, now, intent, worker) for intent in intents]

        return await self._write(job)

    def _start(self, connection: apsw.Connection, now: int, intent: Intent, worker: str) -> Started | Effect | None:
        new = rows(connection, SQL["start"], (now, worker, *_values(intent)))
        if not new:
            return self._get(connection, now, intent.identity)
        connection.execute(SQL["call"], (now, worker, *new[0]))
        return Started(intent.identity, fence=1, number=1, generation=1)

    def _get(self, connection: apsw.Connection, now: int, identity: bytes) -> Effect | None:
        found = rows(connection, SQL["effect"], (now, identity))
        return self._rows.effect(found[0]) if found else None

    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None:
        def job(connection: apsw.Connection) -> Started | None:
            now = self._now()
            row = self._change(connection, "restart", now, effect, worker, micros(lease))
            if row is None:
                return None
            connection.execute(SQL["call"], (now, worker, row["identity"], row["number"], row["generation"]))
            return Started(effect.identity, row["fence"], row["number"], row["generation"])

        return await self._write(job)

    def _change(self, connection: apsw.Connection, name: str, now: int, effect: Effect, *args: Any) -> Row | None:
        """One compare-and-set, and what it means for events; None when nothing matched."""
        found = rows(connection, SQL[name], (now, effect.identity, effect.fence, *args))
        if not found:
            return None
        connection.execute(SQL["attend"], (found[0]["event_id"],))
        state = EffectState(found[0]["state"])
        if is_known(state):
            self._follow_one(connection, now, settled(effect.identity, effect.source, effect.name, effect.key, state))
        return found[0]

    async def follow(
        self,
        db: Session,
        attention: Collection[UUID],
        news: Sequence[Settled] = (),
        waiting: Mapping[UUID, Audit] = NO_EVENTS,
        part_of: str | None = None,
    ) -> None:
        connection, sent = connection_of(db), dict(waiting)
        for event_id in attention:
            connection.execute(SQL["attend"], (event_id.bytes,))
        for known in news:
            for row in rows(connection, SQL["waiting"], (known.source, known.words)):
                sent.setdefault(UUID(bytes=row["id"]), Audit(known.actor, known.reason))
        for event_id, by in sent.items():  # for an event that does not wait, or not any more, nothing matches
            await move_all(db, "retry", [(event_id, State.NEEDS_REVIEW, None)], by, part_of)

    def _follow_one(self, connection: apsw.Connection, now: int, known: Settled) -> None:
        finished(self.follow(SqliteSession(connection, now), (), [known]))

    async def mark_unknown(self, effect: Effect, due_in: float | None) -> bool:
        def job(connection: apsw.Connection) -> bool:
            return self._change(connection, "mark_unknown", self._now(), effect, _micros(due_in)) is not None

        return await self._write(job)

    async def conclude(self, effect: Effect, happened: bool, result: bytes | None, due_in: float | None) -> bool:
        def job(connection: apsw.Connection) -> bool:
            args = (happened, result, _micros(due_in))
            return self._change(connection, "conclude", self._now(), effect, *args) is not None

        return await self._write(job)

    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool:
        def job(connection: apsw.Connection) -> bool:
            return self._change(connection, "put_off", self._now(), effect, _micros(due_in), error) is not None

        return await self._write(job)

    async def release(self, effect: Effect, due_in: float, reason: str) -> bool:
        def job(connection: apsw.Connection) -> bool:
            row = self._change(connection, "release", self._now(), effect, micros(due_in), reason)
            if row is not None:
                connection.execute(SQL["uncall"], (effect.identity, row["number"]))
            return row is not None

        return await self._write(job)

    async def get(self, identity: bytes) -> Effect | None:
        return await self._read(lambda connection: self._get(connection, self._now(), identity))

    async def state_of(self, identity: bytes) -> EffectState | None:
        effect = await self.get(identity)  # there is one writer: nobody is changing it since before this was asked
        return effect.state if effect else None

    async def finish(self, completions: Sequence[Completion]) -> list[Concluded]:
        def job(connection: apsw.Connection) -> list[Concluded]:
            now, attention = self._now(), set[bytes]()
            concluded = [self._finish(connection, now, completion, attention) for completion in completions]
            for event in attention:
                connection.execute(SQL["attend"], (event,))
            return concluded

        return await self._write(job)

    def _finish(
        self, connection: apsw.Connection, now: int, completion: Completion, attention: set[bytes]
    ) -> Concluded:
        """Record, weigh, move. Adds the event to `attention` if that may have changed."""
        identity = completion.identity
        found = rows(connection, SQL["standing"], (identity,))
        if not found:
            raise WrongState(f"no effect {identity.hex()}")
        [row] = found
        end = (completion.number, completion.outcome.value, completion.error, completion.only_if_open)
        news = rows(connection, SQL["tell"], (now, identity, *end))
        before, move = standing(row), None
        # What was told before, or belongs to a generation that is over, moves nothing.
        if news and news[0]["generation"] == row["generation"]:
            calls = rows(connection, SQL["calls"], (identity,))
            move = apply_outcome(before, told(calls, row["generation"]), completion, self._rows.time(now))
        if move is None:
            return Concluded(before.state)
        moved = (now, identity, move.state.value, move.result, _micros(move.due_in), move.error, move.alert)
        connection.execute(SQL["move"], moved)
        if calls_for_attention(before, move):
            attention.add(row["event_id"])
        if settles_unknown(before, move.state):
            self._follow_one(connection, now, settled(identity, row["source"], row["name"], row["key"], move.state))
        return Concluded(move.state, move.alert)

    # ── the outbox ──

    async def claim(self, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        def job(connection: apsw.Connection) -> list[Effect]:
            now, taken, left = self._now(), [], wanted
            while left:
                found = [
                    self._take(connection, now, identity, worker, lease)
                    for name, most, lease in left
                    for identity in self._due(connection, now, name, most, self._turns.begin(name))
                ]
                left = self._turns.left(left, found)
                taken += found
            return taken

        return await self._write(job)

    def _due(self, connection: apsw.Connection, now: int, name: str, most: int, lane: str) -> list[bytes]:
        """What is due of one name, the longest due first; of the lanes, from this one on."""
        found = rows(connection, SQL["due"], (now, name, most))
        found += rows(connection, SQL["heads"], (now, name, most, lane))
        return [row["identity"] for row in sorted(found, key=itemgetter("due_at"))[:most]]

    def _take(self, connection: apsw.Connection, now: int, identity: bytes, worker: str, lease: float) -> Effect:
        connection.execute(SQL["claim"], (now, identity, worker, micros(lease)))
        # Read before the call is counted: the doubt is about earlier ones.
        effect = self._get(connection, now, identity)
        assert effect is not None
        if effect.state is EffectState.STARTED:
            connection.execute(SQL["call"], (now, worker, identity, effect.number, effect.generation))
        return effect

    async def due(self, names: Sequence[str]) -> set[str]:
        def job(connection: apsw.Connection) -> set[str]:
            now = self._now()
            return {name for name in names if self._due(connection, now, name, 1, "")}

        return await self._read(job)

    async def held(self, worker: str) -> list[Effect]:
        found = await self._read(lambda connection: rows(connection, SQL["held"], (self._now(), worker)))
        return [self._rows.effect(row) for row in found]

    async def expired(self, limit: int) -> list[Effect]:
        found = await self._read(lambda connection: rows(connection, SQL["expired"], (self._now(), limit)))
        return [self._rows.effect(row) for row in found]


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else micros(seconds)


def _values(intent: Intent) -> tuple[Any, ...]:
    return (
        intent.identity,
        intent.kind.value,
        intent.source,
        intent.name,
        intent.key,
        intent.event_id.bytes,
        intent.claim,
        intent.arguments,
        intent.arguments_digest,
        intent.repeat.value if intent.repeat else None,
        intent.downstream,
        micros(intent.lease),
    )
