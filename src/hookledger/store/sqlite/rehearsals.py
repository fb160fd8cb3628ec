"""Rehearsals on SQLite: the same table, and nobody who could run one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

import apsw
import msgspec

from ...errors import ConfigError
from ...identities import new_id
from ...ledger import Effect
from ...model import Kind
from ...rehearsals import DIED, NOBODY, Rehearsal, Result
from ...states import State
from ..decisions import in_order, refusal
from ..protocol import Adapter
from ..queries import load
from ..rehearsals import KEPT, RehearsalTransaction
from ..rows import Rows
from .circuits import Run
from .connection import rows
from .decisions import SqliteDecisions
from .intake import micros

SQL = load(__package__, "rehearsals.sql")


class SqliteRehearsals:
    impossible = "a rehearsal needs PostgreSQL: on SQLite its transaction would stall every ack until it ends"

    def __init__(self, write: Run, now: Callable[[], int], values: Rows, decisions: SqliteDecisions) -> None:
        self._write = write
        self._now = now
        self._rows = values
        self._decisions = decisions

    def transaction(
        self, adapter: Adapter | None, limit: float, repeat: Collection[bytes] = ()
    ) -> RehearsalTransaction:
        raise ConfigError(self.impossible)

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        return await self._write(lambda connection: rows(connection, SQL[name], args))

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

        def job(connection: apsw.Connection) -> UUID:
            now, event = self._now(), (event_id.bytes, expected.value)
            values = (now, ident.bytes, *event, seen, actor, reason, named, micros(patience))
            if not rows(connection, SQL["ask"], values):
                raise refusal(event_id, "replay", expected, seen, self._decisions.found(connection, event_id))
            connection.execute(SQL["note"], (now, new_id().bytes, *event, actor, reason, f"rehearsal {ident}"))
            connection.execute(SQL["forget"], (KEPT,))
            return ident

        return await self._write(job)

    async def asked(self) -> list[tuple[UUID, Kind]]:
        found = await self._fetch("asked", self._now())
        return [(UUID(bytes=row["id"]), Kind(row["source"], row["type"])) for row in found]

    async def take(self, ident: UUID, worker: str, lease: float) -> Rehearsal | None:
        taken = await self._fetch("take", self._now(), ident.bytes, worker, micros(lease))
        return self._rows.rehearsal(taken[0]) if taken else None

    async def finish(self, ident: UUID, worker: str, result: Result, *, failed: bool = False) -> bool:
        values = (self._now(), ident.bytes, worker, "failed" if failed else "done", result.kept().decode())
        return bool(await self._fetch("finish", *values))

    async def lapse(self) -> None:
        await self._fetch("lapse", self._now(), NOBODY.kept().decode(), DIED.kept().decode())

    async def get(self, ident: UUID) -> Rehearsal | None:
        found = await self._fetch("get", ident.bytes)
        return self._rows.rehearsal(found[0]) if found else None
