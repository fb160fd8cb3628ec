"""A handler's transaction on SQLite: begun late, limited hard, because a writer blocks every ack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

import apsw

from ...errors import BadData, ClaimLost, HandlerCommitted, TransactionTooLong
from ...ledger import GuardAnswer, GuardRequest, Intent, Known
from ...model import Outcome
from ...states import EffectKind, EffectState
from ..call_outcome import may_adopt
from ..rows import intent_values, trace_values
from . import guards
from .connection import Row, Writer, rows, translate
from .files import Connection
from .session import query
from .turn import Turn

Settle = Callable[[apsw.Connection, Sequence[Outcome]], int]
T = TypeVar("T")


class SqliteTransaction:
    """Holds the process' turn to write from the first statement to the end."""

    def __init__(
        self, writer: Writer, turn: Turn, settle: Settle, sql: Callable[[str], str], now: Callable[[], int]
    ) -> None:
        self._writer = writer
        self._turn = turn
        self._settle = settle
        self._sql = sql
        self._now = now
        self._begun = self._settled = False
        self._over: Exception | None = None
        self._beginning = asyncio.Lock()

    @cached_property
    def tx(self) -> SqliteStatements:
        return SqliteStatements(self)

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def exclusive(self) -> bool:
        return self._begun and self._over is None

    async def begin(self) -> None:
        """At the first statement: the lock is held as short as can be."""

    async def run(self, job: Callable[[Connection], T]) -> T:
        """Run `job` in the transaction, begun if it was not."""
        if self._over is not None:
            raise self._over
        async with self._beginning:  # a handler may gather several statements
            if not self._begun:
                await self._begin()

        def mine(connection: Connection) -> T:
            self._writer.check_holder(self)
            return job(connection)

        return await self._writer.run_job(mine)

    async def _begin(self) -> None:
        await self._turn.take(queued=True)
        if self._over is not None:  # rolled back while we queued: only we can release the turn
            self._turn.release()
            raise self._over
        loop = asyncio.get_running_loop()
        self._begun = True

        def expired(committed: bool) -> None:
            loop.call_soon_threadsafe(self._end, HandlerCommitted() if committed else TransactionTooLong())

        self._writer.expired = expired
        try:
            await self._writer.run_job(lambda connection: self._writer.begin_limited(connection, self))
        except Exception:
            self._begun = False
            self._turn.release()
            raise

    def _end(self, why: Exception) -> None:
        if self._begun and self._over is None:
            self._over = why
            self._writer.expired = None
            self._turn.release()

    # ── effects ──

    async def once(self, intent: Intent) -> bool:
        values = (self._now(), *intent_values(intent, intent.event_id.bytes))
        return await self._keep(lambda connection: bool(rows(connection, self._sql("once"), values)))

    async def other_stage(self, intent: Intent) -> str | None:
        def job(connection: apsw.Connection) -> list[Row]:
            given = {"identity": intent.identity, "event_id": intent.event_id.bytes}
            return list(connection.execute(query("other_stage"), given))

        found = await self._keep(job)
        return str(found[0][0]) if found else None

    async def is_same_event(self, one: UUID, other: UUID) -> bool:
        given = {"one": one.bytes, "other": other.bytes}
        return await self._keep(lambda connection: bool(list(connection.execute(query("is_same_event"), given))))

    async def plan(self, intent: Intent) -> Known | None:
        def job(connection: apsw.Connection) -> Known | None:
            known = self._known(connection, intent)
            if known is not None and not may_adopt(known, intent):
                return known
            place = None
            if intent.lane is not None:
                [(place,)] = rows(connection, self._sql("place"), (intent.name, intent.lane))
            if known is not None:
                rows(connection, self._sql("adopt"), (self._now(), intent.identity, intent.lane, place))
                return None
            repeat = None if intent.repeat is None else intent.repeat.value
            values = (
                self._now(),
                *intent_values(intent, intent.event_id.bytes),
                repeat,
                intent.downstream,
                intent.lane,
                place,
                *trace_values(intent),
            )
            rows(connection, self._sql("plan"), values)
            return None

        return await self._keep(job)

    async def known(self, intent: Intent) -> Known | None:
        return await self._keep(lambda connection: self._known(connection, intent))

    async def newer(self, request: GuardRequest) -> GuardAnswer:
        return await self._keep(lambda connection: guards.ask(connection, self._sql, self._now(), request))

    async def note_stale(self, answer: GuardAnswer) -> None:
        await self._keep(lambda connection: guards.note_stale(connection, self._sql, self._now(), answer))

    def _known(self, connection: apsw.Connection, intent: Intent) -> Known | None:
        for kind, state, digest in rows(connection, self._sql("known"), (intent.identity,)):
            return Known(EffectKind(kind), EffectState(state), digest)
        return None

    async def _keep(self, job: Callable[[apsw.Connection], T]) -> T:
        def guarded(connection: apsw.Connection) -> T:
            if self._writer.has_ended(connection):  # the row would commit without the handler's writes
                raise HandlerCommitted()
            return job(connection)

        try:
            return await self.run(guarded)
        except apsw.Error as error:
            raise translate(error) from error
        except (OverflowError, ValueError) as error:  # what no column can hold: lone surrogates
            raise BadData(str(error)) from error

    # ── the end ──

    async def check(self) -> None:
        """Nothing is held back, and foreign keys are not enforced: only whether it is still open."""
        await self._keep(lambda connection: None)

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        def finish(connection: Connection) -> None:
            if self._writer.has_ended(connection):
                raise HandlerCommitted()
            if self._settle(connection, outcomes) != len(outcomes):
                raise ClaimLost()
            self._settled = True
            connection.commit()
            self._writer.end_limited()

        try:
            await self.run(finish)
        except BaseException as error:
            if await self.rollback() and not isinstance(error, HandlerCommitted):
                raise HandlerCommitted() from error
            raise
        self._end(ClaimLost("the transaction of this attempt is over"))

    async def rollback(self, *, abandoned: bool = False) -> bool:
        del abandoned  # later statements raise that it is over
        if not self._begun or self._over is not None:
            self._over = self._over or ClaimLost("the transaction of this attempt is over")
            return isinstance(self._over, HandlerCommitted)

        def undo(connection: apsw.Connection) -> bool:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._writer.end_limited()
            return self._writer.has_committed() and not self._settled  # else it was our own COMMIT

        try:
            return await asyncio.shield(self._writer.run_job(undo))
        finally:
            self._end(ClaimLost("the transaction of this attempt is over"))

    def explain(self, error: Exception) -> Exception:
        return error  # TransactionTooLong names its setting


class SqliteStatements:
    """What a handler gets."""

    def __init__(self, transaction: SqliteTransaction) -> None:
        self._transaction = transaction

    async def execute(self, sql: str, *args: Any) -> list[Row]:
        return await self.fetch(sql, *args)

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        values = list(rows)
        await self._transaction.run(lambda connection: list(connection.executemany(sql, values)))

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        return await self._transaction.run(lambda connection: rows(connection, sql, args))

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        found = await self.fetch(sql, *args)
        return found[0] if found else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row else None
