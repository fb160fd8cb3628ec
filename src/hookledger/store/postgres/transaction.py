"""A handler's transaction on PostgreSQL, its outcome the last statement before the commit."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from ...errors import BadData, ClaimLost, HandlerCommitted
from ...ledger import Intent, Known
from ...model import Outcome
from ...states import EffectKind, EffectState
from ..protocol import Adapter
from ..rows import outcome_values
from ..weigh import may_adopt
from .intake import columns

log = logging.getLogger(__name__)

_DATA_ERRORS = ("22", "23", "54")


class PostgresTransaction:
    """In the user's own library: begun before the handler, which gets what the adapter hands out."""

    SETTINGS = "settings"

    def __init__(self, adapter: Adapter, sql: Callable[[str], str], idle_limit: float) -> None:
        self._adapter = adapter
        self._sql = sql
        self._limit = int(idle_limit * 1000)
        self._mark = ""
        self._begun = False
        self._over = False
        self.turn = asyncio.Lock()
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
        """The adapter, its transaction begun. Only for whoever has the turn."""
        if self._over:
            raise ClaimLost("the transaction of this attempt is over")
        if not self._begun:
            self._mark = secrets.token_hex(8)
            try:
                await self._adapter.begin(self.settings())
                await self.began()
            except BaseException:
                # Nobody knows whether it began: no statement may follow, on this connection or in this attempt.
                self._over = True
                await self._adapter.discard()
                raise
            if self._over:  # rolled back while we queued: nobody would give the connection back
                await self._undo()
                raise ClaimLost("the transaction of this attempt is over")
            self._begun = True
        return self._adapter

    def settings(self) -> str:
        """The first statement."""
        return self._sql(self.SETTINGS) % (self._mark, self._limit, self._limit)

    async def began(self) -> None:
        """What else is to be done before the handler's first statement."""

    async def _run(self, name: str, *args: Any) -> list[Any]:
        return await (await self.ready()).run(self._sql(name), args)

    # ── effects ──

    async def once(self, intent: Intent) -> bool:
        return await self._keep("once", intent) is None

    async def plan(self, intent: Intent) -> Known | None:
        repeat = None if intent.repeat is None else intent.repeat.value
        return await self._keep("plan", intent, repeat, intent.downstream, intent.lane)

    async def _keep(self, name: str, intent: Intent, *more: Any) -> Known | None:
        """None, or what is known of it already."""
        async with self.turn:
            await self.ready()  # the mark is made there
            while not await self._insert(name, *_values(intent), self._mark, *more):
                known = await self._known(intent)
                if known is None:
                    continue
                if intent.kind is not EffectKind.LATER or not may_adopt(known, intent):
                    return known
                if await self._adopt(intent):
                    break
            return None

    async def _known(self, intent: Intent) -> Known | None:
        [(mark, kind, state, digest)] = await self._run("known", intent.identity)
        if mark != self._mark:
            raise HandlerCommitted()
        return None if kind is None else Known(EffectKind(kind), EffectState(state), bytes(digest))

    async def _adopt(self, intent: Intent) -> bool:
        values = (intent.identity, intent.name, intent.arguments_digest, intent.lane, self._mark)
        return bool(await self._run("adopt", *values))

    async def _insert(self, name: str, *values: Any) -> list[Any]:
        try:
            return await self._run(name, *values)
        except Exception as error:
            if is_data_error(error):
                raise BadData(str(error)) from error
            raise

    # ── the end ──

    async def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Outcome, then COMMIT; see the protocol for what is raised."""
        try:
            async with self.turn:
                await self.settle(outcomes)
                await self._adapter.commit()
        except BaseException:
            await self.rollback()
            raise
        self._over, self._begun = True, False

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Write the outcomes. Only for whoever has the turn."""
        await (await self.ready()).flush()
        # Sorted as everywhere: whoever writes several events takes their locks in one order.
        rows = sorted(map(outcome_values, outcomes), key=itemgetter(0))
        settled = await self._run("settle", *(columns(rows) or [[]] * 9), self._mark)
        if not outcomes or len(settled) != len(outcomes):
            await self._check_mark()
            if outcomes:
                raise ClaimLost()

    async def _check_mark(self) -> None:
        """Raises HandlerCommitted when the transaction that we began is over. Only for whoever has the turn."""
        [row] = await self._run("mark")
        if row[0] != self._mark:
            raise HandlerCommitted()

    async def rollback(self, *, abandoned: bool = False) -> None:
        self._over = True
        if self._begun:
            self._begun = False
            await self._undo(abandoned)

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
                await self._adapter.discard()


class LazyTransaction(PostgresTransaction):
    """In asyncpg: begun at the first statement; the handler gets `Statements`."""

    SETTINGS = "begin_handler"

    @cached_property
    def tx(self) -> PostgresStatements:
        return PostgresStatements(self)

    async def begin(self) -> None:
        """At the first statement."""


class PostgresStatements:
    """What a handler gets by default."""

    def __init__(self, transaction: LazyTransaction) -> None:
        self._transaction = transaction

    async def execute(self, sql: str, *args: Any) -> str:
        async with self._transaction.turn:
            done: str = await (await self._transaction.ready()).tx.execute(sql, *args)
            return done

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        async with self._transaction.turn:
            await (await self._transaction.ready()).tx.executemany(sql, rows)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._transaction.turn:
            rows: list[Any] = await (await self._transaction.ready()).tx.fetch(sql, *args)
            return rows

    async def fetchrow(self, sql: str, *args: Any) -> Any | None:
        async with self._transaction.turn:
            return await (await self._transaction.ready()).tx.fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        async with self._transaction.turn:
            return await (await self._transaction.ready()).tx.fetchval(sql, *args)


def _values(intent: Intent) -> tuple[Any, ...]:
    return (
        intent.identity,
        intent.source,
        intent.name,
        intent.key,
        intent.event_id,
        intent.claim,
        intent.arguments,
        intent.arguments_digest,
    )


def sqlstate(error: BaseException) -> str:
    """Of an error of any driver, as it is or wrapped; empty where there is none."""
    for link in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(link, "sqlstate", None)
        if isinstance(code, str):
            return code
    return ""


def is_data_error(error: BaseException) -> bool:
    """Whether a value cannot be kept: refused by the server, or by the driver before it was sent."""
    code = sqlstate(error)
    if code:
        return code[:2] in _DATA_ERRORS
    return isinstance(error, ValueError | OverflowError) or type(error).__name__ == "DataError"
