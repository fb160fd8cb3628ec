"""The effect ledger on PostgreSQL: what was started is committed before the call, on connections of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...errors import WrongState
from ...model import Completion, Concluded, Effect, EffectHistory, Intent, Started, new_id
from ...states import CallOutcome, EffectKind, EffectState, State
from ..queries import load
from ..rows import Rows, standing, told
from ..turns import Turns
from ..weigh import Move, calls_for_attention, decide, weigh
from .circuits import PostgresCircuits
from .connection import Connections, transaction
from .dialect import Dialect
from .intake import columns

QUERIES = load(__package__, "ledger.sql")


class PostgresLedger(PostgresCircuits):
    """`connections`: none that a handler holds, or two would wait for each other. `events`: the store's queries."""

    def __init__(
        self, sql: Dialect, circuits: Dialect, events: Callable[[str], str], connections: Callable[[], Connections]
    ) -> None:
        super().__init__(circuits, connections)
        self._sql = sql
        self._events = events
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

    async def _change(self, name: str, *args: Any) -> Any | None:
        """One compare-and-set, and what it means for the event's attention; None when nothing matched."""

        async def work(connection: Any) -> Any | None:
            async with transaction(connection, self._sql("begin")):
                row = await connection.fetchrow(self._sql(name), *args)
                if row is not None:
                    await self._attend(connection, {row["event_id"]})
                return row

        return await self._connections().insist(work)

    async def _attend(self, connection: Any, events: set[UUID]) -> None:
        if events:
            await connection.fetch(self._sql("lock_events"), sorted(events))
            await connection.execute(self._sql("attend"), sorted(events))

    # ── calls ──

    async def start(self, intents: Sequence[Intent], worker: str) -> list[Started | Effect | None]:
        first: dict[bytes, int] = {}
        for place, intent in enumerate(intents):
            first.setdefault(intent.identity, place)
        wanted = [_values(intents[place]) for _, place in sorted(first.items())]
        new = {row["identity"] for row in await self._fetch("start", worker, *columns(wanted))} if wanted else set()
        started = {first[identity] for identity in new}
        others = {intent.identity for place, intent in enumerate(intents) if place not in started}
        rows = await self._fetch("effects", sorted(others)) if others else []
        known = {row["identity"]: self._rows.effect(row) for row in rows}
        return [
            Started(intent.identity, fence=1, number=1, generation=1)
            if place in started
            else known.get(intent.identity)
            for place, intent in enumerate(intents)
        ]

    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None:
        row = await self._change("restart", effect.identity, effect.fence, worker, lease)
        return None if row is None else Started(effect.identity, row["fence"], row["number"], row["generation"])

    async def doubt(self, effect: Effect, due_in: float | None) -> bool:
        return await self._change("doubt", effect.identity, effect.fence, due_in) is not None

    async def conclude(self, effect: Effect, happened: bool, result: bytes | None, due_in: float | None) -> bool:
        args = (effect.identity, effect.fence, happened, result, due_in)
        return await self._change("conclude", *args) is not None

    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool:
        return await self._change("put_off", effect.identity, effect.fence, due_in, error) is not None

    async def get(self, identity: bytes) -> Effect | None:
        rows = await self._fetch("effects", [identity])
        return self._rows.effect(rows[0]) if rows else None

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
        ends = [(identity, c.number, c.outcome.value, c.error) for identity, c in sorted(batch.items())]
        news = {row["identity"]: row for row in await connection.fetch(self._sql("tell"), *columns(ends))}
        calls: dict[bytes, list[Any]] = {}
        for row in await connection.fetch(self._sql("calls"), sorted(news)):
            calls.setdefault(row["identity"], []).append(row)
        moves: list[tuple[Any, ...]] = []
        attention: set[UUID] = set()
        concluded: dict[int, Concluded] = {}
        for identity, completion in sorted(batch.items()):
            if identity not in effects:
                raise WrongState(f"no effect {identity.hex()}")
            row, end = effects[identity], news.get(identity)
            before, move = standing(row), None
            # What was told before, or belongs to a generation that is over, moves nothing.
            if end is not None and end["generation"] == row["generation"]:
                move = weigh(before, told(calls[identity], row["generation"]), completion, end["ended_at"])
            if move is not None:
                moves.append(_moved(identity, move))
                if calls_for_attention(before, move):
                    attention.add(row["event_id"])
            concluded[id(completion)] = Concluded(
                move.state if move else before.state, move.alert if move else None
            )
        if moves:
            await connection.execute(self._sql("move"), *columns(moves))
        await self._attend(connection, attention)
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

    # ── operate ──

    async def resolve(
        self, effect: Effect, decision: str, result: bytes | None, actor: str, reason: str
    ) -> None:
        target = decide(effect, decision, result)
        changes = target is not effect.state
        decided = decision if changes and target is not EffectState.CANCELLED else None
        where = (effect.identity, effect.fence, effect.state.value, target.value)

        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                row = await connection.fetchrow(
                    self._sql("resolve"), *where, decided, result, new_id(), actor, reason
                )
                if row is None:
                    raise WrongState(f"effect {effect.name}:{effect.key} changed meanwhile")
                await self._attend(connection, {row["event_id"]})
                if changes and effect.kind is EffectKind.CALL:
                    # The handler waited for this answer; for any other event nothing matches.
                    args = (row["event_id"], State.NEEDS_REVIEW.value, new_id(), actor, reason)
                    await connection.fetch(self._events("retry"), *args)

        await self._connections().insist(work)

    async def of_event(self, event_id: UUID) -> tuple[EffectHistory, ...]:
        """What an event brought about, and the calls made for it."""
        effects = await self._fetch("of_event", event_id)
        calls = await self._fetch("calls", [row["identity"] for row in effects]) if effects else []
        return self._rows.effects(effects, calls)


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
