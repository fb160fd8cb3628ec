"""How many handlers may run concurrently: the worker's concurrency, and within it each source's `max_running` and
each library's connections.

A handler in the user's own library has its transaction from its start to its outcome. One more of them than the pool
has connections would only wait in a slot that another handler could use.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..store.protocol import Transactions

FIRST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds without new handlers after a transaction could not be begun; doubled each time in a row."""

Library = Transactions | None
"""Of the handler's transaction; None where it is our own, or none at all."""
Limited = str | Library
"""A source, by its name, with its stages; or a library."""


class Slots:
    """Who has one, by source and library. `max_running`: how many a source may have; without limit if not named."""

    def __init__(self, concurrency: int, max_running: Mapping[str, int]) -> None:
        self._concurrency = concurrency
        self._max_running = max_running
        self.left: int = concurrency
        """Of the worker's own."""
        self._taken: Counter[Limited] = Counter()
        self._rests: dict[Library, float] = {}
        self._until: dict[Library, float] = {}

    def _limit(self, limited: Limited) -> int | None:
        if isinstance(limited, str):
            return self._max_running.get(limited)
        return None if limited is None else limited.size

    def free(self, limited: Limited) -> int:
        """How many of it can start now."""
        if not isinstance(limited, str) and self.resting(limited):
            return 0
        limit = self._limit(limited)
        return self.left if limit is None else min(self.left, limit - self._taken[limited])

    def room(self, ahead: float) -> int:
        """How many can start now, and `ahead` times as many as can run concurrently."""
        return self.left + int(self._concurrency * ahead)

    def limits(self, among: Iterable[Limited], ahead: float) -> dict[Limited, int]:
        """The same for each of these that has a limit below the concurrency."""
        found: dict[Limited, int] = {}
        for limited in among:
            limit = self._limit(limited)
            if not isinstance(limited, str) and self.resting(limited):
                found[limited] = 0
            elif limit is not None and limit < self._concurrency:
                found[limited] = self.free(limited) + int(limit * ahead)
        return found

    def take(self, *taken: Limited) -> None:
        """One, which counts for a source and a library."""
        self.left -= 1
        self._taken.update(taken)

    def release(self, *taken: Limited) -> None:
        self.left += 1
        self._taken.subtract(taken)

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
