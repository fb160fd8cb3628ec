"""What a store does for retention: a walk in the order of time, window by window, that takes away what is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from ..errors import WrongState
from ..retention import Arrived, Candidate, Round, Tombstone, Turn

RUNNING, OVER, INTERRUPTED = "pruning", "pruned", "interrupted"
"""The `to_state` of a round's audit entry: while it runs, when it ended, and when it did not come to its end."""


class Pruning(Protocol):
    """`store.pruning`. Every call is one short transaction that waits for no worker and makes none wait.

    A crash at any moment leaves each event whole or wholly pruned, and the audit entry of the round says how many
    went: both are one commit. After a crash of the database, what was taken away may be there again, and is taken
    away again. A `round_` of None only counts what would go; WrongState when another has taken the turn.
    """

    @property
    def stops_others(self) -> bool:
        """Whether nobody else can write while one of its transactions is open, as on SQLite."""
        ...

    # ── turns and walks ──
    async def turn(self, round_: Round) -> Turn:
        """Take or renew the turn, unless another has it. The audit entry of a round that nobody ended is closed."""
        ...

    async def end_turn(self, round_: Round, how: str) -> None:
        """Give the turn back and close the audit entry: OVER or INTERRUPTED."""
        ...

    async def position(self, walk: str, again: float) -> UUID:
        """Where a walk goes on; at the beginning if it last began there more than so many seconds ago."""
        ...

    async def remember(self, walk: str, position: UUID) -> None: ...

    async def events(self, after: UUID, before: UUID, limit: int) -> list[Candidate]:
        """The next events between two ids, in any state."""
        ...

    async def deliveries(self, after: UUID, before: UUID, limit: int) -> list[Arrived]:
        """All deliveries of the next so many requests between two ids."""
        ...

    # ── taking away ──
    async def prune(self, chosen: Sequence[Candidate], quiet: float, round_: Round | None) -> int:
        """Take events away with their deliveries, attempts and bytes; returns how many went.

        Identities and effects stay, the effects without arguments and errors. An event stays that changed since it
        was chosen, that somebody holds at this moment, that has an effect which is not over, or that was delivered
        again within the last `quiet` seconds.
        """
        ...

    async def empty(self, chosen: Sequence[Candidate], older: float, round_: Round | None) -> int:
        """Take away bytes, headers and query of requests; returns how many events lost theirs.

        A request is emptied when all events in it are over for `older` seconds and nothing odd came with it.
        """
        ...

    async def forget(self, chosen: Sequence[Candidate], round_: Round | None) -> int:
        """Take away tracebacks of attempts, and of calls for effects that are over; returns for how many events."""
        ...

    async def drop(self, duplicates: Sequence[Arrived], odd: Sequence[Arrived], round_: Round | None) -> int:
        """Take away rows of plain duplicates, and odd deliveries whose event is not here any more, unless an event
        was made of them; returns how many went."""
        ...

    # ── evidence ──
    async def pruned(self, first: UUID, last: UUID) -> list[Tombstone]:
        """Events that were pruned, with ids from one to another; at most ten."""
        ...


def entry_of(holder: str) -> UUID | None:
    """The audit entry that a holder's name leads to; earlier releases had none before the end."""
    try:
        return UUID(holder.rpartition(" ")[2])
    except ValueError:
        return None


def taken_over(round_: Round) -> WrongState:
    return WrongState(f"another took the turn of {round_.holder} to prune: what it had not begun is left to that one")
