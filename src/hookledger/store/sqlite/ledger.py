"""The effect ledger on SQLite: what was started is on disk before the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

import apsw

from ...errors import WrongState
from ...identities import new_id
from ...ledger import Completion, Concluded, Effect, EffectHistory, Intent, Started
from ...states import BY_NAME, EffectKind, EffectState, State
from ..ops.decisions import changed
from ..queries import load
from ..rows import Rows, standing, told
from ..session import Session
from ..turns import Turns
from ..weigh import (
    Settled,
    calls_for_attention,
    check_try,
    decide,
    is_known,
    replaced,
    settled,
    settles_doubt,
    weigh,
)
from .connection import Row, Run, rows
from .intake import micros
from .session import connection_of

SQL = load(__package__, "ledger.sql")


class SqliteLedger:
    def __init__(self, read: Run, write: Run, now: Callable[[], int], values: Rows) -> None:
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
        if is_known(state) and name not in ("resolve", "try_now"):
            self._go_on(connection, now, settled(effect.identity, effect.source, effect.name, effect.key, state))
        return found[0]

    def _go_on(
        self, connection: apsw.Connection, now: int, known: Settled, *others: bytes, part_of: str | None = None
    ) -> None:
        """Who waited for what is known now goes on, and so do the others, if they wait at all. `part_of`: as the
        audit names the job."""
        found = rows(connection, SQL["waiting"], (known.source, known.words))
        review, pending = State.NEEDS_REVIEW.value, BY_NAME["retry"].target.value
        for event in dict.fromkeys((*others, *(row["id"] for row in found))):
            if rows(connection, SQL["go_on"], (now, event)):
                note = (now, "retry", new_id().bytes, event, part_of, review, pending, known.actor, known.reason)
                connection.execute(SQL["note_action"], note)

    async def attend(self, db: Session, events: Collection[UUID]) -> None:
        for event_id in events:
            connection_of(db).execute(SQL["attend"], (event_id.bytes,))

    async def doubt(self, effect: Effect, due_in: float | None) -> bool:
        def job(connection: apsw.Connection) -> bool:
            return self._change(connection, "doubt", self._now(), effect, _micros(due_in)) is not None

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
        end = (completion.number, completion.outcome.value, completion.error, completion.unless_told)
        news = rows(connection, SQL["tell"], (now, identity, *end))
        before, move = standing(row), None
        # What was told before, or belongs to a generation that is over, moves nothing.
        if news and news[0]["generation"] == row["generation"]:
            calls = rows(connection, SQL["calls"], (identity,))
            move = weigh(before, told(calls, row["generation"]), completion, self._rows.time(now))
        if move is None:
            return Concluded(before.state)
        moved = (now, identity, move.state.value, move.result, _micros(move.due_in), move.error, move.alert)
        connection.execute(SQL["move"], moved)
        if calls_for_attention(before, move):
            attention.add(row["event_id"])
        if settles_doubt(before, move.state):
            self._go_on(connection, now, settled(identity, row["source"], row["name"], row["key"], move.state))
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

    # ── operate ──

    async def resolve(self, effect: Effect, decision: str, result: bytes | None, actor: str, reason: str) -> None:
        def job(connection: apsw.Connection) -> None:
            self._resolve_all(connection, self._now(), [effect], decision, result, actor, reason)

        await self._write(job)

    async def resolve_all(
        self, db: Session, effects: Sequence[Effect], decision: str, actor: str, reason: str, part_of: str
    ) -> None:
        self._resolve_all(connection_of(db), self._now(), effects, decision, None, actor, reason, part_of)

    def _resolve_all(
        self,
        connection: apsw.Connection,
        now: int,
        effects: Sequence[Effect],
        decision: str,
        result: bytes | None,
        actor: str,
        reason: str,
        part_of: str | None = None,
    ) -> None:
        """In the caller's transaction: decide these effects, and then what that means for events. Raises WrongState,
        after which the transaction cannot go on."""
        settling: list[tuple[Settled, list[bytes]]] = []
        for effect in effects:
            target = decide(effect, decision, result)
            changes = target is not effect.state
            decided = decision if changes and target is not EffectState.CANCELLED else None
            states = (effect.state.value, target.value)
            row = self._change(connection, "resolve", now, effect, *states, decided, result)
            if row is None:
                raise WrongState(f"effect {effect.name}:{effect.key} changed meanwhile")
            subject = ", ".join(filter(None, (row["subject"], part_of)))
            action = new_id().bytes
            note = (now, "resolve", action, row["event_id"], subject, *states, actor, reason)
            connection.execute(SQL["note_action"], note)
            if (old := replaced(effect, target, result)) is not None:
                connection.execute(SQL["keep_replaced"], (action, old))
            if changes and is_known(target):
                known = settled(effect.identity, effect.source, effect.name, effect.key, target)
                # Its own handler waited for this answer, whatever it said.
                own = [row["event_id"]] if effect.kind is EffectKind.CALL else []
                settling.append((known._replace(actor=actor, reason=reason), own))
        for known, own in settling:
            self._go_on(connection, now, known, *own, part_of=part_of)

    async def try_now(self, effect: Effect, actor: str, reason: str) -> None:
        check_try(effect)

        def job(connection: apsw.Connection) -> None:
            now = self._now()
            row = self._change(connection, "try_now", now, effect)
            if row is None:
                raise changed(effect, self._get(connection, now, effect.identity))
            states = (effect.state.value, row["state"])
            note = (now, "try", new_id().bytes, row["event_id"], row["subject"], *states, actor, reason)
            connection.execute(SQL["note_action"], note)

        await self._write(job)

    async def lock_all(self, db: Session, identities: Collection[bytes]) -> dict[bytes, Effect]:
        found = (self._get(connection_of(db), self._now(), identity) for identity in identities)
        return {effect.identity: effect for effect in found if effect is not None}

    async def of_event(self, event_id: UUID) -> tuple[EffectHistory, ...]:
        """What an event brought about, and the calls made for it."""

        def job(connection: apsw.Connection) -> tuple[EffectHistory, ...]:
            effects = rows(connection, SQL["of_event"], (self._now(), event_id.bytes))
            calls = [row for effect in effects for row in rows(connection, SQL["calls"], (effect["identity"],))]
            return self._rows.effects(effects, calls)

        return await self._read(job)

    async def of_events(self, db: Session, event_ids: Sequence[UUID]) -> list[Effect]:
        now, connection = self._now(), connection_of(db)
        found = (row for event in event_ids for row in rows(connection, SQL["of_event"], (now, event.bytes)))
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
