"""The effect ledger on PostgreSQL: what was started is committed before the call, on connections of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from ...errors import Blocked, Unavailable, WrongState
from ...ledger import Completion, Concluded, Effect, Intent, Started
from ...states import CallOutcome, EffectState, State
from ..call_outcome import (
    Move,
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
from ..sqlstate import sqlstate
from .connection import Connections, transaction
from .dialect import Dialect
from .intake import columns
from .session import PostgresDatabase, PostgresSession, Queries, connection_of, part

QUERIES = load(__package__, "ledger.sql", effect_columns=part("effect_columns"))
LOCK_NOT_AVAILABLE = "55P03"


class PostgresLedger(Ledger):
    """`connections`: none that a handler holds, or two would wait for each other."""

    def __init__(self, sql: Dialect, queries: Queries, connections: Callable[[], Connections]) -> None:
        super().__init__(PostgresDatabase(queries, connections))
        self._sql = sql
        self._queries = queries
        self._connections = connections
        self._rows = Rows()
        self._turns = Turns()

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        """One statement, which is its own transaction."""

        async def work(connection: Any) -> list[Any]:
            if not self._connections().pooler:
                return list(await connection.fetch(self._sql(name), *args))
            async with transaction(connection, self._sql("begin")):
                return list(await connection.fetch(self._sql(name), *args))

        return await self._connections().insist(work)

    async def _change(self, name: str, effect: Effect, *args: Any) -> Any | None:
        """One compare-and-set, and what it means for events; None when nothing matched."""

        async def work(connection: Any) -> Any | None:
            async with transaction(connection, self._sql("begin")):
                row = await connection.fetchrow(self._sql(name), effect.identity, effect.fence, *args)
                if row is not None:
                    await self.follow(
                        PostgresSession(connection, self._queries),
                        {row["event_id"]},
                        _settled(effect, EffectState(row["state"])),
                    )
                return row

        return await self._connections().insist(work)

    async def follow(
        self,
        db: Session,
        attention: Collection[UUID],
        news: Sequence[Settled] = (),
        waiting: Mapping[UUID, Audit] = NO_EVENTS,
        part_of: str | None = None,
    ) -> None:
        connection, sent = connection_of(db), dict(waiting)
        if news:
            asked = columns((known.source, known.words) for known in news)
            for row in await connection.fetch(self._sql("waiting"), *asked):
                known = news[row["nth"] - 1]
                sent.setdefault(row["id"], Audit(known.actor, known.reason))
        if not attention and not sent:
            return
        await connection.fetch(self._sql("lock_events"), sorted({*attention, *sent}))
        await connection.execute(self._sql("attend"), sorted(attention))
        for event_id, by in sent.items():  # for an event that does not wait, or not any more, nothing matches
            await move_all(db, "retry", [(event_id, State.NEEDS_REVIEW, None)], by, part_of)

    # ── calls ──

    async def start(self, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        answers: list[Started | Effect | None] = [None] * len(intents)
        left = list(range(len(intents)))
        while left:
            first: dict[bytes, int] = {}
            for place in left:
                first.setdefault(intents[place].identity, place)
            new = await self._start([intents[place] for _, place in sorted(first.items())], worker)
            started = {first[identity] for identity in new}
            others = [place for place in left if place not in started]
            known = await self._get({intents[place].identity for place in others})
            for place in left:
                identity = intents[place].identity
                mine = Started(identity, fence=1, number=1, generation=1)
                answers[place] = mine if place in started else known.get(identity)
            # The first that wanted it has lost its claim; the next one may have a better one.
            left = [place for place in others if answers[place] is None and place != first[intents[place].identity]]
        return answers

    async def _start(self, intents: Sequence[Intent], worker: str) -> set[bytes]:
        """Those that were absent. Each identity once, and sorted."""
        try:
            rows = await self._fetch("start", worker, *columns(map(_values, intents)))
        except Unavailable as error:
            if sqlstate(error) == LOCK_NOT_AVAILABLE:
                raise Blocked() from error
            raise
        return {row["identity"] for row in rows}

    async def _get(self, identities: set[bytes]) -> dict[bytes, Effect]:
        rows = await self._fetch("effects", sorted(identities)) if identities else []
        return {row["identity"]: self._rows.effect(row) for row in rows}

    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None:
        row = await self._change("restart", effect, worker, lease)
        return None if row is None else Started(effect.identity, row["fence"], row["number"], row["generation"])

    async def mark_unknown(self, effect: Effect, due_in: float | None) -> bool:
        return await self._change("mark_unknown", effect, due_in) is not None

    async def conclude(self, effect: Effect, happened: bool, result: bytes | None, due_in: float | None) -> bool:
        return await self._change("conclude", effect, happened, result, due_in) is not None

    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool:
        return await self._change("put_off", effect, due_in, error) is not None

    async def release(self, effect: Effect, due_in: float, reason: str) -> bool:
        return await self._change("release", effect, due_in, reason) is not None

    async def get(self, identity: bytes) -> Effect | None:
        return (await self._get({identity})).get(identity)

    async def state_of(self, identity: bytes) -> EffectState | None:
        async def work(connection: Any) -> list[Any]:
            async with transaction(connection, self._sql("begin")):
                return list(await connection.fetch(self._sql("lock"), [identity]))

        rows = await self._connections().insist(work)
        return EffectState(rows[0]["state"]) if rows else None

    # ── the ends of calls ──

    async def finish(self, completions: Sequence[Completion]) -> list[Concluded]:
        concluded = await self._finish_first(completions)
        # One of each effect at a time: what a call means depends on what the one before it meant.
        rest = deque(completion for completion in completions if id(completion) not in concluded)
        while rest:
            batch: dict[bytes, Completion] = {}
            for _ in range(len(rest)):
                completion = rest.popleft()
                if batch.setdefault(completion.identity, completion) is not completion:
                    rest.append(completion)
            concluded |= await self._finish(batch)
        return [concluded[id(completion)] for completion in completions]

    async def _finish_first(self, completions: Sequence[Completion]) -> dict[int, Concluded]:
        """The usual case in one round trip: the only call so far came back done."""
        usual = {c.identity: c for c in completions if c.outcome is CallOutcome.DONE and c.number == 1}
        if not usual:
            return {}
        values = [(identity, c.result, c.error) for identity, c in sorted(usual.items())]
        rows = await self._fetch("finish_first", *columns(values))
        return {id(usual[row["identity"]]): Concluded(EffectState.DONE) for row in rows}

    async def _finish(self, batch: dict[bytes, Completion]) -> dict[int, Concluded]:
        """Record, weigh, move: completions of different effects, in one transaction."""

        async def work(connection: Any) -> dict[int, Concluded]:
            async with transaction(connection, self._sql("begin")):
                return await self._weigh(connection, batch)

        return await self._connections().insist(work)

    async def _weigh(self, connection: Any, batch: dict[bytes, Completion]) -> dict[int, Concluded]:
        effects = {row["identity"]: row for row in await connection.fetch(self._sql("lock"), sorted(batch))}
        ends = [(i, c.number, c.outcome.value, c.error, c.only_if_open) for i, c in sorted(batch.items())]
        news = {row["identity"]: row for row in await connection.fetch(self._sql("tell"), *columns(ends))}
        calls: dict[bytes, list[Any]] = {}
        for row in await connection.fetch(self._sql("calls"), sorted(news)):
            calls.setdefault(row["identity"], []).append(row)
        moves: list[tuple[Any, ...]] = []
        attention: set[UUID] = set()
        settling: list[Settled] = []
        concluded: dict[int, Concluded] = {}
        for identity, completion in sorted(batch.items()):
            if identity not in effects:
                raise WrongState(f"no effect {identity.hex()}")
            row, end = effects[identity], news.get(identity)
            before, move = standing(row), None
            # What was told before, or belongs to a generation that is over, moves nothing.
            if end is not None and end["generation"] == row["generation"]:
                move = apply_outcome(before, told(calls[identity], row["generation"]), completion, end["ended_at"])
            if move is not None:
                moves.append(_moved(identity, move))
                if calls_for_attention(before, move):
                    attention.add(row["event_id"])
                if settles_unknown(before, move.state):
                    settling.append(settled(identity, row["source"], row["name"], row["key"], move.state))
            concluded[id(completion)] = Concluded(move.state if move else before.state, move.alert if move else None)
        if moves:
            await connection.execute(self._sql("move"), *columns(moves))
        await self.follow(PostgresSession(connection, self._queries), attention, settling)
        return concluded

    # ── the outbox ──

    async def claim(self, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        taken: list[Effect] = []
        while wanted:
            rows = await self._fetch("claim", worker, *columns((*w, self._turns.begin(w[0])) for w in wanted))
            found = [self._rows.effect(row) for row in rows]
            wanted = self._turns.left(wanted, found)
            taken += found
        return taken

    async def due(self, names: Sequence[str]) -> set[str]:
        return {row["name"] for row in await self._fetch("due", list(names))}

    async def held(self, worker: str) -> list[Effect]:
        return [self._rows.effect(row) for row in await self._fetch("held", worker)]

    async def expired(self, limit: int) -> list[Effect]:
        return [self._rows.effect(row) for row in await self._fetch("expired", limit)]


def _settled(effect: Effect, state: EffectState) -> list[Settled]:
    return [settled(effect.identity, effect.source, effect.name, effect.key, state)] if is_known(state) else []


def _values(intent: Intent) -> tuple[Any, ...]:
    return (
        intent.identity,
        intent.kind.value,
        intent.source,
        intent.name,
        intent.key,
        intent.event_id,
        intent.claim,
        intent.arguments,
        intent.arguments_digest,
        intent.repeat.value if intent.repeat else None,
        intent.downstream,
        intent.lease,
    )


def _moved(identity: bytes, move: Move) -> tuple[Any, ...]:
    return identity, move.state.value, move.result, move.due_in, move.error, move.alert
