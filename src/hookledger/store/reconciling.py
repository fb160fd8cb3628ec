"""What a store knows of comparisons with a provider's log, and of repairs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ..errors import WrongState
from ..model import Arrival
from ..reconciling import Begun, Counts, Known, Reconciliation
from ..states import State

OPEN = (State.PENDING, State.PROCESSING, State.RETRYING, State.NEEDS_REVIEW)
"""A repair in one of these is still to come."""


class Reconciling(Protocol):
    """`store.reconciling`. What is missing goes in by `store.record`, as a delivery does; nothing here is on the way
    of an ack."""

    async def known(self, identities: Sequence[bytes]) -> dict[bytes, Known]:
        """Those of these identities that are taken, and by whom."""
        ...

    async def begin(
        self,
        source: str,
        since: datetime,
        until: datetime,
        actor: str,
        reason: str,
        *,
        lease: float,
        slot: datetime | None = None,
    ) -> Begun | None:
        """A new comparison, audited. With a `slot`, one for each: None when another has it, or it was made; taken up
        by whoever asks first after its lease, with the window that it was begun with."""
        ...

    async def renew(self, begun: Begun, lease: float) -> bool:
        """Go on; False when another has taken it up."""
        ...

    async def end(
        self, begun: Begun, counts: Counts, problem: str | None = None, *, again_in: float | None = None
    ) -> bool:
        """What came of it, audited; False when another has taken it up. `again_in`: it failed, and may be tried again
        after so many seconds."""
        ...

    async def last(self) -> list[Reconciliation]:
        """The last comparison of each source."""
        ...

    async def repair(self, arrival: Arrival, about: UUID | None, actor: str, reason: str) -> UUID:
        """Record an event that an operator made for the repair of its object, audited there and on the event that it
        is `about`; returns its id.

        WrongState when the last repair of the object is still to come, with its id and who asked.
        """
        ...


def result(counts: Counts, problem: str | None) -> str:
    """How the audit says that it ended."""
    return (f"failed: {problem}; " if problem else "") + counts.words()


def still_open(object_id: str, event_id: UUID, state: str) -> WrongState:
    return WrongState(f"object {object_id!r} has a repair that is {state} already: event {event_id}")
