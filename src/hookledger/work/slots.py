"""How many handlers may run concurrently: the worker's concurrency, and within it each library's connections.

A handler in the user's own library has its transaction from its start to its outcome. One more of them than the pool
has connections would only wait in a slot that another handler could use.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from ..store.protocol import Transactions

FIRST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds without new handlers after a transaction could not be begun; doubled each time in a row."""

Library = Transactions | None


class Slots:
    """Who has one, by the library of the handler's transaction; None where it is our own, or none at all."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._taken: Counter[Library] = Counter()
        self._rests: dict[Library, float] = {}
        self._until: dict[Library, float] = {}

    def limit(self, library: Library) -> int:
        size = None if library is None else library.size
        return self._concurrency if size is None else min(size, self._concurrency)

    @property
    def left(self) -> int:
        """Of the worker's own."""
        return self._concurrency - self._taken.total()

    def free(self, library: Library) -> int:
        if self.resting(library):
            return 0
        return min(self.left, self.limit(library) - self._taken[library])

    def take(self, library: Library) -> None:
        self._taken[library] += 1

    def release(self, library: Library) -> None:
        self._taken[library] -= 1

    def resting(self, library: Library) -> bool:
        return time.monotonic() < self._until.get(library, 0.0)

    def rest(self, library: Library) -> float:
        """A transaction could not be begun: start none for a while; for how many seconds."""
        now = time.monotonic()
        if not self.resting(library):  # those that began together fail together
            self._rests[library] = min(LONGEST_REST, 2 * self._rests.get(library, FIRST_REST / 2))
            self._until[library] = now + self._rests[library]
        return self._until[library] - now

    def works(self, library: Library) -> None:
        """A transaction was begun."""
        self._rests.pop(library, None)


def small_pools(transactions: Sequence[Transactions], concurrency: int) -> list[str]:
    """What to say of pools that cannot serve as many handlers as the worker would run."""
    return [
        f"{type(given).__name__}: its pool has {given.size} connections and concurrency is {concurrency}, so at "
        f"most {given.size} of its handlers run concurrently: give the pool {concurrency} connections, or lower "
        "concurrency"
        for given in transactions
        if given.size is not None and given.size < concurrency
    ]
