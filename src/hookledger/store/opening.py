"""Opens a store when it is first needed, and does not ask a database again that was away a moment ago."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from ..errors import Unavailable
from .protocol import Store

PAUSE = 1.0
"""Seconds after a failure in which everybody gets the same answer."""


class Opener:
    """`make`: a store that is not open yet. Whoever calls sees to it that only one opens at a time."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._not_before = float("-inf")

    async def open(self, stack: contextlib.AsyncExitStack, *, apart: bool = False) -> Store:
        """Closed with the stack; Unavailable while there is no database. `apart`: as the store has it."""
        if time.monotonic() < self._not_before:
            raise Unavailable("the database did not answer a moment ago")
        store = self._make()
        try:
            await store.open(apart=apart)
        except Unavailable:
            # Those who wait for their turn now need not wait for the same answer once more.
            self._not_before = time.monotonic() + PAUSE
            raise
        stack.push_async_callback(store.close)
        return store
