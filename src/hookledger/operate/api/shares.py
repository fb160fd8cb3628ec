"""What many callers share, so that one address cannot take all of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from .errors import Busy


class Shares:
    """`total` of something, and at most `each` of it for one client."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        return self._taken.total()

    def take(self, client: str, amount: int = 1) -> None:
        """Busy where there is no more; then nothing is taken."""
        if self._taken[client] + amount > self._each or self.taken + amount > self._total:
            self.give_back(client, 0)
            raise Busy
        self._taken[client] += amount

    def give_back(self, client: str, amount: int = 1) -> None:
        self._taken[client] -= amount
        if self._taken[client] <= 0:
            del self._taken[client]

    @contextlib.contextmanager
    def one(self, client: str) -> Iterator[None]:
        self.take(client)
        try:
            yield
        finally:
            self.give_back(client)
