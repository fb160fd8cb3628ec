"""The circuits on SQLite: whether each downstream is being called, the same for every worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import apsw

from ...errors import WrongState
from ...identities import new_id
from ...ledger import Circuit
from ...states import CircuitState
from ..queries import load
from ..rows import Rows
from .connection import rows
from .intake import micros

T = TypeVar("T")
SQL = load(__package__, "circuits.sql")


class Run(Protocol):
    """Runs a job on the store's connection."""

    def __call__(self, job: Callable[[apsw.Connection], T], /) -> Awaitable[T]: ...


class SqliteCircuits:
    """One half of the ledger. `read` is `write` without a transaction around it."""

    def __init__(self, read: Run, write: Run, now: Callable[[], int], values: Rows) -> None:
        self._read = read
        self._write = write
        self._now = now
        self._rows = values

    async def _circuit(self, name: str, *args: Any) -> list[Any]:
        return await self._write(lambda connection: rows(connection, SQL[name], (self._now(), *args)))

    async def circuits(self) -> list[Circuit]:
        found = await self._read(lambda connection: rows(connection, SQL["circuits"], (self._now(),)))
        return [self._rows.circuit(row) for row in found]

    async def fail_circuit(self, downstream: str, threshold: int, cooldown: float, error: str) -> Circuit:
        def job(connection: apsw.Connection) -> Circuit:
            now = self._now()
            connection.execute(SQL["fail"], (now, downstream, threshold, micros(cooldown), error))
            [row] = rows(connection, SQL["circuit"], (now, downstream))
            return self._rows.circuit(row)

        return await self._write(job)

    async def try_circuit(self, downstream: str, lease: float) -> bool:
        return bool(await self._circuit("try", downstream, micros(lease)))

    async def close_circuit(self, downstream: str) -> None:
        await self._circuit("close", downstream)

    async def trip_circuit(self, downstream: str, actor: str, reason: str) -> None:
        await self._operate("trip", downstream, CircuitState.OPEN, actor, reason, (reason,))

    async def reset_circuit(self, downstream: str, actor: str, reason: str) -> None:
        if not await self._operate("reset", downstream, CircuitState.CLOSED, actor, reason, ()):
            raise WrongState(f"no circuit {downstream!r} was ever opened")

    async def _operate(
        self, name: str, downstream: str, target: CircuitState, actor: str, reason: str, more: tuple[str, ...]
    ) -> bool:
        """The change and its audit row; whether the circuit was known."""

        def job(connection: apsw.Connection) -> bool:
            now = self._now()
            known = rows(connection, SQL["circuit"], (now, downstream))
            if known or name == "trip":
                before = known[0]["state"] if known else CircuitState.CLOSED.value
                connection.execute(SQL[name], (now, downstream, *more))
                values = (now, name, new_id().bytes, f"circuit:{downstream}", before, target.value, actor, reason)
                connection.execute(SQL["note_action"], values)
            return bool(known)

        return await self._write(job)
