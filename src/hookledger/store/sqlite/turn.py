"""Whose turn it is to write, among the tasks of one process."""

from __future__ import annotations

import asyncio


class Turn:
    """Of one writing connection.

    Handlers, outcomes and effects queue, and only the first of the queue waits for the turn: so a claim waits for one
    of them, not for all. What queues is written in larger batches, because more comes together while it waits.
    """

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._turn = asyncio.Lock()

    async def take(self, *, queued: bool) -> None:
        if not queued:
            await self._turn.acquire()
            return
        async with self._queue:
            await self._turn.acquire()

    def release(self) -> None:
        self._turn.release()
