"""A resource shared by many clients, so that one address cannot use all of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from .errors import Busy


class Shares:
    """`total` of a resource, and at most `each` per client."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        return self._taken.total()

    def take(self, client: str, amount: int = 1) -> None:
        """Take an amount; Busy, and nothing taken, if there is not enough."""
        if self._taken[client] + amount > self._each or self.taken + amount > self._total:
            self.release(client, 0)
            raise Busy
        self._taken[client] += amount

    def release(self, client: str, amount: int = 1) -> None:
        self._taken[client] -= amount
        if self._taken[client] <= 0:
            del self._taken[client]

    @contextlib.contextmanager
    def one(self, client: str) -> Iterator[None]:
        self.take(client)
        try:
            yield
        finally:
            self.release(client)
