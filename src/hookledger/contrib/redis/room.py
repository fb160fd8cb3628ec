"""How many commands run at a time, and which is next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Room for `size` commands. Those of callers that have a key go first: a renewal or an answer that waits behind
    the claims of a flood would come after its lease, and the work would run again."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._first: deque[asyncio.Future[None]] = deque()
        self._then: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def enter(self, *, first: bool) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            (self._first if first else self._then).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was given room in the meantime
                    self._leave()
                raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        for waiting in (self._first, self._then):
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
