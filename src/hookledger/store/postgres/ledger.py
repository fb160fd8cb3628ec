"""The effect ledger on PostgreSQL: `started` is committed before the call, on separate connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

from ...errors import Blocked, Unavailable, WrongState
from ...ledger import Completion, Concluded, Effect, Intent, Started
from ...states import CallOutcome, EffectState
from ..call_outcome import Move, Settled
from ..lanes import Turns
from ..ledger import Ledger, consequences, finish_of
from ..rows import intent_values, value_of
from ..session import Session, writes
from ..sqlstate import sqlstate
from ..text import load, shared
from .connection import BEGIN, Connections, transaction
from .dialect import Dialect
from .intake import columns
from .session import PostgresDatabase, Queries, connection_of

QUERIES = load(__package__, "ledger.sql", effect_columns=shared("postgres")["effect_columns"])
LOCK_NOT_AVAILABLE = "55P03"


class PostgresLedger(Ledger):
    """`connections`: none that a handler holds, or two would wait for each other."""

    def __init__(self, sql: Dialect, queries: Queries, connections: Callable[[], Connections]) -> None:
        super().__init__(PostgresDatabase(queries, connections))
        self._sql = sql
        self._connections = connections
        self._turns = Turns()

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        """One statement, which is its own transaction."""

        async def work(connection: Any) -> list[Any]:
            if not self._connections().pooler:
                return list(await connection.fetch(self._sql(name), *args))
            async with transaction(connection, BEGIN):
                return list(await connection.fetch(self._sql(name), *args))

        return await self._connections().insist(work)

    async def _waiting(self, db: Session, news: Sequence[Settled]) -> list[tuple[UUID, Settled]]:
        asked = columns((known.source, known.words) for known in news)
        rows = await connection_of(db).fetch(self._sql("waiting"), *asked)
        return [(row["id"], news[row["nth"] - 1]) for row in rows]

    async def _attend(self, db: Session, attention: Collection[UUID], sent: Collection[UUID]) -> None:
        await connection_of(db).fetch(self._sql("lock_events"), sorted({*attention, *sent}))
        await connection_of(db).execute(self._sql("attend"), sorted(attention))

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
        if not identities:
            return {}
        rows = await self._database.read(lambda db: db("effects", identities=sorted(identities)))
        return {row["identity"]: value_of(Effect, row) for row in rows}

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

    @writes
    async def _finish(self, db: Session, batch: dict[bytes, Completion]) -> dict[int, Concluded]:
        """Record the ends of calls of different effects, decide what they mean, and move the effects."""
        connection = connection_of(db)
        effects = {row["identity"]: row for row in await connection.fetch(self._sql("lock"), sorted(batch))}
        if missing := batch.keys() - effects.keys():
            raise WrongState(f"no effect {min(missing).hex()}")
        ends = [(i, c.number, c.outcome.value, c.error, c.unless_ended) for i, c in sorted(batch.items())]
        recorded = {row["identity"]: row for row in await connection.fetch(self._sql("end_calls"), *columns(ends))}
        calls: dict[bytes, list[Any]] = {}
        for row in await connection.fetch(self._sql("calls"), sorted(recorded)):
            calls.setdefault(row["identity"], []).append(row)
        found = {
            identity: finish_of(effects[identity], recorded.get(identity), calls.get(identity, ()), completion)
            for identity, completion in sorted(batch.items())
        }
        if moves := [_moved(identity, end.move) for identity, end in found.items() if end.move is not None]:
            await connection.execute(self._sql("move"), *columns(moves))
        await self.follow(db, *consequences(found.values()))
        return {id(batch[identity]): end.concluded for identity, end in found.items()}

    # ── the outbox ──

    async def claim(self, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Effect]:
        taken: list[Effect] = []
        while wanted:
            rows = await self._fetch("claim", worker, *columns((*w, self._turns.begin(w[0])) for w in wanted))
            found = [value_of(Effect, row) for row in rows]
            wanted = self._turns.left(wanted, found)
            taken += found
        return taken

    async def due(self, names: Sequence[str]) -> set[str]:
        return {row["name"] for row in await self._fetch("due", list(names))}


def _values(intent: Intent) -> tuple[Any, ...]:
    identity, *others = intent_values(intent)
    repeat = intent.repeat.value if intent.repeat else None
    return identity, intent.kind.value, *others, repeat, intent.downstream, intent.lease


def _moved(identity: bytes, move: Move) -> tuple[Any, ...]:
    return identity, move.state.value, move.result, move.due_in, move.error, move.alert
