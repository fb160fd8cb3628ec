"""A handler's transaction on PostgreSQL, its outcome the last statement before the commit."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any
from uuid import UUID

from ...errors import BadData, ClaimLost, ConfigError, HandlerCommitted, TransactionIdle, Unavailable
from ...ledger import GuardAnswer, GuardRequest, Intent, Known
from ...model import Outcome
from ...states import EffectKind, EffectState
from ..call_outcome import may_adopt
from ..protocol import Adapter
from ..rows import intent_values, stage_values, trace_values
from ..sqlstate import DATA_ERRORS, sqlstate
from . import guards
from .connection import is_open
from .session import numbered, values_of
from .settle import settle_values

log: logging.Logger = logging.getLogger(__name__)

_IDLE = "25P03"
_CLOSED = {"InterfaceError", "ConnectionDoesNotExistError", "OperationalError"}
"""What drivers raise on a connection that is gone; asyncpg does not say why."""

_CHECK_CONSTRAINTS = "SET CONSTRAINTS ALL IMMEDIATE"
"""Those that wait for the commit."""

_COMMIT = re.compile(r"(?:^|;|\*/|--[^\n]*\n)\s*(?:commit|end|prepare\s+transaction)\b", re.IGNORECASE)

Fate = Callable[[str], Awaitable[str | None]]
"""What became of a transaction, by its id."""


class PostgresTransaction:
    """In the user's own library: begun before the handler, which gets what the adapter hands out."""

    SETTINGS = "settings"

    def __init__(
        self, adapter: Adapter, sql: Callable[[str], str], idle_limit: float, fate: Fate | None = None
    ) -> None:
        self._adapter = adapter
        self._sql = sql
        self._idle_limit = idle_limit
        self._limit = int(idle_limit * 1000)
        self._used_at = time.monotonic()
        self._idle = 0.0
        """Seconds for which it was not used, as far as we see, before its last use."""
        self._fate = fate
        self._xid = ""
        self._settled = False
        self._mark = ""
        self._begun = False
        self._over = False
        self.turn: asyncio.Lock = asyncio.Lock()
        """One statement at a time: a handler that gathers several must not begin two transactions."""

    @property
    def tx(self) -> Any:
        return self._adapter.tx

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def exclusive(self) -> bool:
        return False

    async def begin(self) -> None:
        async with self.turn:
            await self.ready()

    async def ready(self) -> Adapter:
        """Return the adapter with its transaction begun. The caller holds the turn."""
        if self._over:
            raise ClaimLost("the transaction of this attempt is over")
        if not self._begun:
            self._mark = secrets.token_hex(8)
            try:
                settings = self._sql(self.SETTINGS) % (self._mark, self._limit, self._limit)
                self._check(await self._adapter.begin(settings))
            except BaseException:
                # It may have begun or not: no statement may follow, on this connection or in this attempt.
                self._over = True
                await self._discard()
                raise
            if self._over:  # rolled back while we queued: only we can release the connection
                await self._undo()
                raise ClaimLost("the transaction of this attempt is over")
            self._begun = True
            self._used_at = time.monotonic()
        self._idle = time.monotonic() - self._used_at
        return self._adapter

    @asynccontextmanager
    async def using(self) -> AsyncIterator[Any]:
        """What the adapter hands out, for one statement."""
        async with self.turn:
            try:
                yield (await self.ready()).tx
            finally:
                self._used_at = time.monotonic()

    def _check(self, settings: Sequence[Any]) -> None:
        for row in settings:
            *_, self._xid, level = row
            if level != "read committed":
                raise ConfigError(
                    f"transactions= begins transactions at the isolation level {level.upper()}, where the outcome "
                    "cannot be written: the worker renews the event's lease in the meantime; use READ COMMITTED: "
                    'create_engine(…, isolation_level="READ COMMITTED"), connection.isolation_level in psycopg, or '
                    "default_transaction_isolation of the role"
                )

    async def _run(self, name: str, *args: Any) -> list[Any]:
        return await (await self.ready()).run(self._sql(name), args)

    async def _run_shared(self, name: str, **parameters: Any) -> list[Any]:
        """Run a query of `store/sql/`."""
        sql, names = numbered(self._sql(name))
        return await (await self.ready()).run(sql, values_of(names, parameters))

    # ── effects ──

    async def once(self, intent: Intent) -> bool:
        return await self._keep("once", intent) is None

    async def other_stage(self, intent: Intent) -> str | None:
        async with self.turn:
            rows = await self._run_shared("other_stage", event_id=intent.event_id, identity=intent.identity)
            return str(rows[0][0]) if rows else None

    async def is_same_event(self, one: UUID, other: UUID) -> bool:
        async with self.turn:
            return bool(await self._run_shared("is_same_event", one=one, other=other))

    async def plan(self, intent: Intent) -> Known | None:
        repeat = None if intent.repeat is None else intent.repeat.value
        return await self._keep("plan", intent, repeat, intent.downstream, intent.lane, *trace_values(intent))

    async def known(self, intent: Intent) -> Known | None:
        async with self.turn:
            return await self._known(intent)

    async def newer(self, request: GuardRequest) -> GuardAnswer:
        async with self.turn:
            await self.ready()  # the mark is made there
            return await guards.ask(self._insert, request, self._mark)

    async def note_stale(self, answer: GuardAnswer) -> None:
        async with self.turn:
            await guards.note_stale(self._insert, answer)

    async def _keep(self, name: str, intent: Intent, *more: Any) -> Known | None:
        """None, or what is known of it already."""
        async with self.turn:
            await self.ready()  # the mark is made there
            while not await self._insert(name, *intent_values(intent), self._mark, *more):
                known = await self._known(intent)
                if known is None:
                    continue
                if intent.kind is not EffectKind.LATER or not may_adopt(known, intent):
                    return known
                facts = (intent.identity, intent.name, intent.arguments_digest, intent.lane)
                if await self._run("adopt", *facts, self._mark):
                    break
            return None

    async def _known(self, intent: Intent) -> Known | None:
        [(mark, kind, state, digest)] = await self._run("known", intent.identity)
        if mark != self._mark:
            raise HandlerCommitted()
        return None if kind is None else Known(EffectKind(kind), EffectState(state), bytes(digest))

    async def _insert(self, name: str, *values: Any) -> list[Any]:
        try:
            return await self._run(name, *values)
        except Exception as error:
            if is_data_error(error):
                raise BadData(str(error)) from error
            raise

    # ── the end ──

    async def check(self) -> None:
        async with self.turn:
            adapter = await self.ready()
            await adapter.flush()
            await self._check_mark()
            await adapter.run(_CHECK_CONSTRAINTS, ())

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Outcome, then COMMIT; see the protocol for what is raised."""
        try:
            async with self.turn:
                await self.settle(outcomes)
                self._settled = True
                await self._adapter.commit()
        except BaseException as error:
            if await self.rollback() and not isinstance(error, HandlerCommitted):
                raise HandlerCommitted() from error
            raise
        self._over, self._begun = True, False

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Write the outcomes. The caller holds the turn."""
        await (await self.ready()).flush()
        settled = await self._run("settle", *settle_values(outcomes, self._mark))
        if stages := stage_values(outcomes):
            await self._run_shared("begin_stages", stages=stages)
        if not outcomes or len(settled) != len(outcomes):
            await self._check_mark()
            if outcomes:
                raise ClaimLost()

    async def _check_mark(self) -> None:
        """Raise HandlerCommitted if the transaction that we began has ended. The caller holds the turn."""
        [row] = await self._adapter.run(self._sql("mark"), ())
        if row[0] != self._mark:
            raise HandlerCommitted()

    async def rollback(self, *, abandoned: bool = False) -> bool:
        self._over = True
        if not self._begun:
            return False
        self._begun = False
        abandoned = abandoned and self.in_use()
        if self._settled:  # with the mark in place: what came after it is our own COMMIT
            await self._undo(abandoned)
            return False
        ended = None if abandoned else await self.ended_by_handler()
        await self._undo(abandoned)
        return await self.was_committed() if ended is None else ended

    def in_use(self) -> bool:
        """Whether a handler that was given up may be at a statement."""
        return True

    async def ended_by_handler(self) -> bool | None:
        """None where it cannot be asked: after a failed statement, or on a broken connection."""
        try:
            await self._check_mark()
        except HandlerCommitted:
            return True
        except Exception as error:
            log.debug("the mark cannot be looked at: %s", error)
            return None
        return False

    async def was_committed(self) -> bool:
        """Asked elsewhere, and for as long as it takes: until then nothing else could be written of the event."""
        while self._fate is not None:
            try:
                fate = await self._fate(self._xid)
            except Unavailable as error:
                log.debug("whether a handler committed is not known yet: %s", error)
            except BadData:  # the server has been restored, and does not know this transaction
                return False
            else:
                if fate != "in progress":
                    return fate == "committed"
            await asyncio.sleep(0.1)
        return False

    async def _undo(self, abandoned: bool = False) -> None:
        undone = False
        try:
            if not abandoned:
                await self._adapter.rollback()
                undone = True
        except Exception as error:  # a statement of the handler is still running, or the server is gone
            log.debug("a handler's connection is broken off: %s", error)
        finally:
            if not undone:
                await self._discard()

    def explain(self, error: Exception) -> Exception:
        idle = max(self._idle, time.monotonic() - self._used_at)
        closed = any(kind.__name__ in _CLOSED for kind in type(error).__mro__)
        if sqlstate(error) != _IDLE and not (closed and idle >= self._idle_limit):
            return error
        return TransactionIdle(
            "the connection of event.tx is gone: PostgreSQL ends a transaction that is idle for longer than the "
            f"lease ({self._idle_limit:g} s); do what takes long before its first statement or with "
            "transaction=False, or raise [work] lease, for answers [answers] lease, for guarded routes lease= of the "
            "guard"
        )

    async def _discard(self) -> None:
        """Never raises: what ended the attempt is its reason, and not what the dead connection says about it."""
        try:
            await self._adapter.discard()
        except Exception as error:
            log.warning("a handler's connection could not be discarded: %s", error)


class LazyTransaction(PostgresTransaction):
    """In asyncpg: begun at the first statement; the handler gets `Statements`."""

    SETTINGS = "begin_handler"
    _ended = False
    _commits = False
    """Whether a statement of the handler was to commit."""

    @cached_property
    def tx(self) -> PostgresStatements:
        return PostgresStatements(self)

    async def begin(self) -> None:
        """At the first statement."""

    def in_use(self) -> bool:
        return self.turn.locked()

    def note_statement(self, sql: str) -> None:
        """Before a statement of the handler."""
        self._commits = self._commits or commits(sql)

    def note_state(self, connection: Any) -> None:
        """After a statement of the handler: what the driver knows costs nothing."""
        self._ended = self._ended or (is_open(connection) and not connection.is_in_transaction())

    async def ended_by_handler(self) -> bool | None:
        ended = self._ended or await super().ended_by_handler()
        if ended is None and not self.in_use():
            try:
                answer = await self._adapter.tx.execute(self._sql("rollback_handler") % self._mark)
            except Exception as error:
                log.debug("whether a handler committed cannot be asked: %s", error)
            else:
                return bool(answer == "SELECT 1")
        return ended

    async def was_committed(self) -> bool:
        """Where the session cannot be asked: unless it was never told to commit, it may have."""
        return self._ended or self._commits


class PostgresStatements:
    """What a handler gets by default."""

    def __init__(self, transaction: LazyTransaction) -> None:
        self._transaction = transaction

    async def _run(self, method: str, sql: str, *args: Any) -> Any:
        async with self._transaction.using() as connection:
            self._transaction.note_statement(sql)
            try:
                return await getattr(connection, method)(sql, *args)
            finally:
                self._transaction.note_state(connection)

    async def execute(self, sql: str, *args: Any) -> str:
        done: str = await self._run("execute", sql, *args)
        return done

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        await self._run("executemany", sql, rows)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        rows: list[Any] = await self._run("fetch", sql, *args)
        return rows

    async def fetchrow(self, sql: str, *args: Any) -> Any | None:
        return await self._run("fetchrow", sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        return await self._run("fetchval", sql, *args)


def commits(sql: str) -> bool:
    """Whether one of its statements is to commit. A column may be called so: only the first word counts."""
    return _COMMIT.search(sql) is not None


def is_data_error(error: BaseException) -> bool:
    """Whether a value cannot be kept: refused by the server, or by the driver before it was sent."""
    code = sqlstate(error)
    if code:
        return code[:2] in DATA_ERRORS
    return isinstance(error, ValueError | OverflowError) or type(error).__name__ == "DataError"
