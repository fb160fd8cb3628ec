"""What a store can prove about itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ..accounting import Accounting, Oddity
from ..errors import Unavailable


class Books(Protocol):
    """`store.books`. Reads only, whole tables where need be, and keeps no ack waiting."""

    async def accounting(self, *, limit: float = 300.0) -> Accounting:
        """Everything that must balance, as it stands at one instant, while work goes on.

        Proves nothing about what left no trace in any table. Raises Unavailable when it takes longer than `limit`
        seconds: that long the snapshot keeps the database from clearing away old rows.
        """
        ...

    async def stuck(self, longer_than: float) -> list[Oddity]:
        """Leases of events and of effects that ran out more than so many seconds ago, and nobody took back."""
        ...

    async def unperformable(self) -> Oddity | None:
        """Outbox entries that wait for a worker that knows their arguments."""
        ...

    async def settings(self) -> dict[str, str]:
        """The database's own settings that durability and isolation rest on, by its own names for them."""
        ...

    async def integrity(self, *, limit: float = 300.0) -> list[str]:
        """What the database finds wrong with its file; nothing where it has no such check. Raises as `accounting`."""
        ...


def too_long(limit: float) -> Unavailable:
    return Unavailable(
        f"it took longer than {limit:g} s and was stopped: give it more time, or ask a copy of the database"
    )


def oddity(kind: str, rows: Iterable[Any], ident: Any = str) -> Oddity | None:
    """What a query found: rows of (how many there are in all, id or null, name or null)."""
    found = list(rows)
    if not found:
        return None
    named = (" ".join(filter(None, (row[1] and str(ident(row[1])), row[2]))) for row in found)
    return Oddity(kind, found[0][0], tuple(named))
