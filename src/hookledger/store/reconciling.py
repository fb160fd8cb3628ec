"""What a store knows of comparisons with a provider's log, and of repairs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from ..errors import WrongState
from ..model import Arrival, Recorded
from ..reconciling import NEW, Begun, Counts, Known, Reconciliation
from ..states import State

OPEN = (State.PENDING, State.PROCESSING, State.RETRYING, State.NEEDS_REVIEW)
"""A repair in one of these is still to come."""


class Reconciling(Protocol):
    """`store.reconciling`. What is missing goes in as a delivery does, in one commit with the comparison's counts;
    nothing here is on the way of an ack."""

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
        by whoever asks first after its lease, with the window that it was begun with. Comparisons of the source that
        nobody ended are closed, and the audit says how far they came."""
        ...

    async def record(self, begun: Begun, arrivals: Sequence[Arrival], counts: Counts) -> list[list[Recorded]]:
        """Record what is missing, and what the comparison has counted with it, in one commit. `counts`: before that.
        WrongState when another has taken it up."""
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


def with_recorded(counts: Counts, results: Sequence[Sequence[Recorded]]) -> str:
    """What is kept of a comparison's counts when these arrivals were recorded. One that is not new came meanwhile, or
    its very body had come under another id."""
    new = sum(any(one.outcome in NEW for one in became) for became in results)
    found = msgspec.structs.replace(
        counts,
        missing=counts.missing + new,
        taken_in=counts.taken_in + new,
        matched=counts.matched + len(results) - new,
    )
    return msgspec.json.encode(found).decode()


INTERRUPTED = "interrupted: nobody ended it"


def how_far(counts: str | None) -> tuple[str, str]:
    """What is kept and what the audit says of a comparison that nobody ended, by what it had counted."""
    found = msgspec.json.decode(counts, type=Counts) if counts else Counts()
    return msgspec.json.encode(found).decode(), f"{INTERRUPTED}; {found.words()}"


def taken_up(begun: Begun) -> WrongState:
    return WrongState(f"the comparison of source {begun.source!r} was taken up by another")


def still_open(object_id: str, event_id: UUID, state: str) -> WrongState:
    return WrongState(f"object {object_id!r} has a repair that is {state} already: event {event_id}")
