"""Rehearsals on PostgreSQL: their table, and a handler's transaction that cannot be committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from asyncpg import Connection

from ...errors import HandlerCommitted, Unavailable
from ...identities import new_id
from ...ledger import Effect, Intent, Known
from ...model import Kind
from ...rehearsals import DIED, NOBODY, Rehearsal, Result, Write
from ...states import EffectKind, EffectState, State
from ..decisions import in_order, refusal
from ..protocol import Adapter
from ..queries import load
from ..rehearsals import KEPT
from ..rows import Rows
from ..sqlstate import sqlstate
from ..weigh import may_adopt
from .connection import OUTAGE, Connections, transaction
from .decisions import PostgresDecisions
from .dialect import Dialect
from .transaction import LazyTransaction, PostgresTransaction

QUERIES = load(__package__, "rehearsals.sql")
LOCK_LIMIT, STATEMENT_LIMIT = 2.0, 5.0
"""Seconds that one statement of a rehearsal may wait for a lock, and take."""


class PostgresRehearsals:
    """`connect` makes a connection, with these settings of the server's."""

    impossible = None

    def __init__(
        self,
        sql: Dialect,
        general: Dialect,
        connections: Callable[[], Connections],
        decisions: PostgresDecisions,
        connect: Callable[[dict[str, str]], Awaitable[Connection[Any]]],
    ) -> None:
        self._sql = sql
        self._general = general
        self._connections = connections
        self._decisions = decisions
        self._connect = connect
        self._rows = Rows()

    def transaction(
        self, adapter: Adapter | None, limit: float, repeat: Collection[bytes] = ()
    ) -> PostgresRehearsal | LazyRehearsal:
        if adapter is not None:
            return PostgresRehearsal(adapter, self._general, limit, self._sql, repeat)
        own = OwnConnection(self._connect, sealed=not self._connections().pooler)
        return LazyRehearsal(own, self._general, limit, self._sql, repeat)

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        async with self._connections().use() as connection:
            return await connection.fetch(self._sql(name), *args)

    async def ask(
        self,
        event_id: UUID,
        expected: State,
        seen: int,
        repeat: Sequence[Effect],
        actor: str,
        reason: str,
        *,
        patience: float,
    ) -> UUID:
        named = msgspec.json.encode([effect.identity.hex() for effect in in_order(repeat, event_id)]).decode()
        ident = new_id()
        values = (ident, event_id, expected.value, seen, actor, reason, named, patience, new_id())

        async def work(connection: Any) -> UUID:
            async with transaction(connection, self._sql("begin")):
                if not await connection.fetch(self._sql("ask"), *values):
                    found = await self._decisions.found(connection, event_id)
                    raise refusal(event_id, "replay", expected, seen, found)
                await connection.execute(self._sql("forget"), KEPT)
            return ident

        return await self._connections().insist(work)

    async def asked(self) -> list[tuple[UUID, Kind]]:
        return [(row["id"], Kind(row["source"], row["type"])) for row in await self._fetch("asked")]

    async def take(self, ident: UUID, worker: str, lease: float) -> Rehearsal | None:
        taken = await self._fetch("take", ident, worker, lease)
        return self._rows.rehearsal(taken[0]) if taken else None

    async def finish(self, ident: UUID, worker: str, result: Result, *, failed: bool = False) -> bool:
        state = "failed" if failed else "done"
        return bool(await self._fetch("finish", ident, worker, state, result.kept().decode()))

    async def lapse(self) -> None:
        await self._fetch("lapse", NOBODY.kept().decode(), DIED.kept().decode())

    async def get(self, ident: UUID) -> Rehearsal | None:
        found = await self._fetch("get", ident)
        return self._rows.rehearsal(found[0]) if found else None


class OwnConnection:
    """An adapter; see the protocol. No later handler gets the connection, whatever was done to it.

    `sealed`: outside the rehearsal's own transaction it can only read. Not behind a transaction pooler, which takes
    no settings for a session.
    """

    def __init__(self, connect: Callable[[dict[str, str]], Awaitable[Connection[Any]]], *, sealed: bool) -> None:
        self._connect = connect
        self._connection: Connection[Any] | None = None
        self.sealed = sealed

    @property
    def tx(self) -> Connection[Any]:
        assert self._connection is not None, "not begun"
        return self._connection

    async def begin(self, settings: str) -> list[Any]:
        try:
            self._connection = await self._connect({"default_transaction_read_only": "on"} if self.sealed else {})
            await self._connection.execute(settings)
        except OUTAGE as error:  # no connection left, say: nothing that the handler is to blame for
            raise Unavailable(f"its transaction cannot be begun: {error or type(error).__name__}") from error
        return []

    async def run(self, sql: str, args: Sequence[Any]) -> list[Any]:
        return await self.tx.fetch(sql, *args)

    async def flush(self) -> None:
        """Nothing is held back."""

    async def commit(self) -> None:
        raise AssertionError("a rehearsal is never committed")

    async def rollback(self) -> None:
        await self.tx.execute("ROLLBACK")
        await self.tx.close(timeout=5.0)

    async def discard(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


if TYPE_CHECKING:
    Base = PostgresTransaction
else:
    Base = object


class Rehearsing(Base):
    """What a rehearsal does otherwise than a run."""

    def __init__(
        self, adapter: Adapter, general: Dialect, limit: float, sql: Dialect, repeat: Collection[bytes]
    ) -> None:
        super().__init__(adapter, general, limit)
        self._own = sql
        self._repeat = repeat
        self._before: dict[int, tuple[int, int, int]] = {}
        self._counts = False
        self._asked: set[bytes] = set()

    def settings(self) -> str:
        ours = self.SETTINGS == LazyTransaction.SETTINGS
        # Idle for as long as the rehearsal may take, and a little: the worker stops it before the server does.
        limits = (int(LOCK_LIMIT * 1000), int(STATEMENT_LIMIT * 1000), self._limit + 5000)
        return self._own(self.SETTINGS) % (*[self._mark] * (2 if ours else 3), *limits)

    async def began(self) -> None:
        [(self._counts,)] = await self._adapter.run(self._own("counted"), ())
        self._before = {row[0]: tuple(row)[2:] for row in await self._adapter.run(self._own("written"), ())}

    async def once(self, intent: Intent) -> bool:
        """Looks, where a run would insert: so nobody waits for a rehearsal's row."""
        async with self.turn:
            await self.ready()
            first = await self._known(intent) is None and intent.identity not in self._asked
            self._asked.add(intent.identity)
            return first

    async def plan(self, intent: Intent) -> Known | None:
        async with self.turn:
            await self.ready()
            known = await self._known(intent)
            return None if known is None or may_adopt(known, intent) else known

    async def _known(self, intent: Intent) -> Known | None:
        known = await super()._known(intent)
        if known is None or intent.identity not in self._repeat:
            return known
        if known.kind is EffectKind.ONCE:
            return None
        return Known(EffectKind.CALL, EffectState.PLANNED, known.arguments_digest)  # as a replay would make it

    async def conclude(self) -> None:
        async with self.turn:
            await (await self.ready()).flush()
            await self._check_mark()
            await self._adapter.run(self._own("lift_guard"), (self._mark,))
            await self._adapter.run(self._own("check_constraints"), ())

    async def writes(self) -> tuple[Write, ...] | None:
        if not self._begun:
            return None if self._over else ()
        try:
            async with self.turn:
                await self._check_mark()
                rows = await self._adapter.run(self._own("written"), ())
        except Exception:  # the transaction has failed, or is not ours any more
            return None
        return tuple(filter(None, (self._difference(row) for row in rows))) if self._counts else None

    def _difference(self, row: Any) -> Write | None:
        before = self._before.get(row[0], (0, 0, 0))
        counts = [now - then for now, then in zip(tuple(row)[2:], before, strict=True)]
        return Write(row[1], *counts) if any(counts) else None

    @property
    def sealed(self) -> bool:
        return isinstance(self._adapter, OwnConnection) and self._adapter.sealed

    async def ended(self) -> bool:
        if not self._begun:
            return False
        try:
            async with self.turn:
                await self._check_mark()
        except HandlerCommitted:
            return True
        except Exception:  # it has failed, and cannot be asked
            return False
        return False

    def limited(self, error: BaseException) -> str | None:
        match sqlstate(error):
            case "55P03":
                return f"a statement waited {LOCK_LIMIT:g} s for a lock that another transaction holds"
            case "57014":
                return f"a statement took longer than {STATEMENT_LIMIT:g} s"
        return None

    def refused_commit(self, error: BaseException) -> bool:
        return sqlstate(error) == "23505" and "rehearsal_guard" in str(error)


class PostgresRehearsal(Rehearsing, PostgresTransaction):
    """In the user's own library."""


class LazyRehearsal(Rehearsing, LazyTransaction):
    """In asyncpg."""
