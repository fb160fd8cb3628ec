"""The circuits on PostgreSQL: whether each downstream is being called, the same for every worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import WrongState
from ...identities import new_id
from ...ledger import Circuit
from ..queries import load
from ..rows import Rows
from .connection import Connections
from .dialect import Dialect

QUERIES = load(__package__, "circuits.sql")


class PostgresCircuits:
    """One half of the ledger."""

    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._circuit_sql = sql
        self._connections = connections
        self._rows = Rows()

    async def _circuit(self, name: str, *args: Any) -> list[Any]:
        async with self._connections().use() as connection:
            return await connection.fetch(self._circuit_sql(name), *args)

    async def circuits(self) -> list[Circuit]:
        return [self._rows.circuit(row) for row in await self._circuit("circuits")]

    async def fail_circuit(self, downstream: str, threshold: int, cooldown: float, error: str) -> Circuit:
        [row] = await self._circuit("fail", downstream, threshold, cooldown, error)
        return self._rows.circuit(row)

    async def try_circuit(self, downstream: str, lease: float) -> bool:
        return bool(await self._circuit("try", downstream, lease))

    async def close_circuit(self, downstream: str) -> None:
        await self._circuit("close", downstream)

    async def trip_circuit(self, downstream: str, actor: str, reason: str) -> None:
        await self._circuit("trip", downstream, new_id(), actor, reason)

    async def reset_circuit(self, downstream: str, actor: str, reason: str) -> None:
        if not await self._circuit("reset", downstream, new_id(), actor, reason):
            raise WrongState(f"no circuit {downstream!r} was ever opened")
