"""Circuit breakers: whether a downstream is being called, known to all workers through the database."""

from __future__ import annotations

import asyncio
import logging
import time

from msgspec import Struct

from ..clock import Seconds
from ..errors import CircuitOpen, ConfigError, HookledgerError
from ..states import CircuitState
from ..store.ops.circuits import Circuit, Circuits

log: logging.Logger = logging.getLogger(__name__)


class CircuitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[work.circuit]`: when a downstream is given a rest."""

    failures: int = 5
    """Failures in a row that open its circuit."""
    cooldown: Seconds = Seconds("10s")
    """Until one trial call; it doubles with each trial that fails, up to sixteenfold."""

    def __post_init__(self) -> None:
        if self.failures < 1 or self.cooldown <= 0:
            raise ConfigError("a circuit needs failures >= 1 and cooldown > 0")


class Breakers:
    """What this worker knows of the circuits, at most `stale` seconds old.

    A breaker spares a dead downstream; it guards nothing. So an answer that is
    a moment old will do, and a database that does not answer stops no call.
    """

    def __init__(self, circuits: Circuits, settings: CircuitSettings, *, stale: float = 0.5) -> None:
        self._circuits = circuits
        self._settings = settings
        self._stale = stale
        self._known: dict[str, Circuit] = {}
        self._asked = float("-inf")
        self._asking = asyncio.Lock()

    async def refresh(self) -> None:
        async with self._asking:
            if time.monotonic() - self._asked < self._stale:
                return
            try:
                self._known = {circuit.downstream: circuit for circuit in await self._circuits.all()}
            except HookledgerError as error:
                log.warning("circuits not read: %s", error)
            self._asked = time.monotonic()

    def closed(self, downstream: str) -> bool:
        known = self._known.get(downstream)
        return known is None or known.state is CircuitState.CLOSED

    def may_try(self, downstream: str) -> bool:
        """Whether an open circuit has cooled down; `may_call` decides who gets the trial."""
        known = self._known.get(downstream)
        return known is not None and known.retry_in is not None and self._left(known) <= 0

    def _left(self, known: Circuit) -> float:
        """Seconds until a trial is allowed, by what was read and the time since."""
        assert known.retry_in is not None
        return known.retry_in - (time.monotonic() - self._asked)

    async def may_call(self, downstream: str, lease: float) -> bool:
        """Whether a call may be made now: the circuit is closed, or this is its one trial."""
        await self.refresh()
        if self.closed(downstream):
            return True
        if not self.may_try(downstream):
            return False
        self._asked = float("-inf")
        if not await self._circuits.try_again(downstream, lease):
            return False
        log.info("circuit %s: one trial call", downstream)
        return True

    def rejection(self, downstream: str) -> CircuitOpen:
        """Return the error for a call that is not allowed now."""
        known = self._known.get(downstream)
        after = self._settings.cooldown if known is None or known.retry_in is None else known.retry_in
        why = f": {known.reason}" if known is not None and known.reason else ""
        return CircuitOpen(f"the circuit of {downstream} is open{why}", after=max(after, 0.5))

    async def failed(self, downstream: str, error: str) -> None:
        """Count a failure of the downstream."""
        try:
            circuit = await self._circuits.fail(downstream, self._settings.failures, self._settings.cooldown, error)
        except HookledgerError as failure:
            log.warning("circuit %s: failure not counted: %s", downstream, failure)
            return
        if self.closed(downstream) and circuit.state is CircuitState.OPEN:
            log.error("circuit %s is open after %d failures in a row: %s", downstream, circuit.failures, error)
        self._known[downstream] = circuit

    async def came_back(self, downstream: str) -> None:
        """A call came back. Costs nothing while all is well."""
        known = self._known.get(downstream)
        if known is None or (known.state is CircuitState.CLOSED and known.failures == 0):
            return
        try:
            await self._circuits.close(downstream)
        except HookledgerError as failure:
            log.warning("circuit %s: not closed: %s", downstream, failure)
            return
        if not self.closed(downstream):
            log.info("circuit %s is closed again", downstream)
        self._known.pop(downstream, None)  # of several that came back together, one was first
