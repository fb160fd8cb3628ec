"""Circuit breakers: whether each downstream is called, the same for every worker."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ...errors import WrongState
from ...states import CircuitState
from ..rows import value_of
from ..session import Operations, Session, reads, writes
from .audit import Audit, Change, record_action


class Circuit(Struct, frozen=True):
    """One downstream."""

    downstream: str
    state: CircuitState
    failures: int
    """In a row."""
    retry_in: float | None
    """Seconds until a trial call is allowed; None when closed, or when only an operator can reset it."""
    reason: str | None
    changed_at: datetime


class Circuits(Operations):
    """`store.circuits`."""

    @reads
    async def all(self, db: Session) -> list[Circuit]:
        """Every downstream that ever failed or was tripped."""
        return [value_of(Circuit, row) for row in await db("list_circuits")]

    @writes
    async def fail(self, db: Session, downstream: str, threshold: int, cooldown: float, error: str) -> Circuit:
        """Count a failure; open the circuit at the threshold, and immediately if this was the trial call."""
        given = {"downstream": downstream, "threshold": threshold, "cooldown": cooldown, "error": error}
        [row] = await db("fail_circuit", **given)
        return value_of(Circuit, row)

    @writes
    async def try_again(self, db: Session, downstream: str, lease: float) -> bool:
        """Take the one trial call that an open circuit allows after its cool-down."""
        return bool(await db("try_circuit", downstream=downstream, lease=lease))

    @writes
    async def close(self, db: Session, downstream: str) -> None:
        """A call succeeded. A circuit tripped by an operator stays open."""
        await db("close_circuit", downstream=downstream)

    @writes
    async def trip(self, db: Session, downstream: str, actor: str, reason: str) -> None:
        """Open it until an operator resets it, audited."""
        known = await db("lock_circuit", downstream=downstream)
        was = known[0]["state"] if known else CircuitState.CLOSED.value
        await db("trip_circuit", downstream=downstream, reason=reason)
        states = (was, CircuitState.OPEN.value)
        await record_action(db, "trip", Audit(actor, reason), Change(f"circuit:{downstream}", states))

    @writes
    async def reset(self, db: Session, downstream: str, actor: str, reason: str) -> None:
        """Close it, audited. Raises WrongState for a downstream that never failed and was never tripped."""
        known = await db("lock_circuit", downstream=downstream)
        if not known:
            raise WrongState(f"circuit {downstream!r} was never opened: `hookledger circuits` lists those that were")
        await db("reset_circuit", downstream=downstream)
        states = (known[0]["state"], CircuitState.CLOSED.value)
        await record_action(db, "reset", Audit(actor, reason), Change(f"circuit:{downstream}", states))
