"""What a store does for retention: a walk in the order of time, window by window, that takes away what is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from ..retention import Arrived, Candidate, Tombstone


class Pruning(Protocol):
    """`store.pruning`. Every call is one short transaction that waits for no worker and makes none wait.

    A crash at any moment leaves each event whole or wholly pruned. After a crash of the database, what was taken away
    may be there again, and is taken away again.
    """

    @property
    def stops_others(self) -> bool:
        """Whether nobody else can write while one of its transactions is open, as on SQLite."""
        ...

    # ── turns and walks ──
    async def turn(self, holder: str, lease: float) -> str | None:
        """Take or renew the turn for so many seconds; None when it is ours, else whose it is."""
        ...

    async def end_turn(self, holder: str) -> None: ...

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
    async def prune(self, chosen: Sequence[Candidate], quiet: float, *, dry: bool = False) -> int:
        """Take events away with their deliveries, attempts and bytes; returns how many went.

        Identities and effects stay, the effects without arguments and errors. An event stays that changed since it
        was chosen, that somebody holds at this moment, that has an effect which is not over, or that was delivered
        again within the last `quiet` seconds.
        """
        ...

    async def empty(self, chosen: Sequence[Candidate], older: float, *, dry: bool = False) -> int:
        """Take away bytes, headers and query of requests; returns how many events lost theirs.

        A request is emptied when all events in it are over for `older` seconds and nothing odd came with it.
        """
        ...

    async def forget(self, chosen: Sequence[Candidate], *, dry: bool = False) -> int:
        """Take away tracebacks of attempts, and of calls for effects that are over; returns for how many events."""
        ...

    async def drop(self, duplicates: Sequence[Arrived], odd: Sequence[Arrived], *, dry: bool = False) -> int:
        """Take away rows of plain duplicates, and odd deliveries whose event is not here any more, unless an event
        was made of them; returns how many went."""
        ...

    # ── evidence ──
    async def pruned(self, first: UUID, last: UUID) -> list[Tombstone]:
        """Events that were pruned, with ids from one to another; at most ten."""
        ...

    async def note(self, actor: str, reason: str, what: str) -> None:
        """One action in the audit for a round that took something away."""
        ...
