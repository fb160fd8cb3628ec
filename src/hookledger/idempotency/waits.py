"""Requests that wait for the answer to the first with their key: one look for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ..errors import HookledgerError, Unavailable
from ..states import State
from ..store.ops.answers import AnswerState

EVERY = 0.05
"""Seconds between two looks."""

Find = Callable[[Sequence[UUID]], Awaitable[dict[UUID, AnswerState]]]


class Waits:
    """`most`: how many may wait for one event."""

    def __init__(self, find: Find, most: int) -> None:
        self._find = find
        self._most = most
        self._waiting: dict[UUID, set[asyncio.Future[AnswerState | None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def wait(self, event_id: UUID, until: float) -> AnswerState | None:
        """Return the event once it is no longer carried out, None if it still is at `until`, by the monotonic clock.
        Raises Unavailable if `most` wait already."""
        waiting = self._waiting.setdefault(event_id, set())
        if len(waiting) >= self._most:
            raise Unavailable("too many requests wait for one answer")
        future: asyncio.Future[AnswerState | None] = asyncio.get_running_loop().create_future()
        waiting.add(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_until_empty())
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await future
        except TimeoutError:
            return None
        finally:
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(event_id, None)

    def look(self) -> None:
        """Look now: an event of this process has ended."""
        self._wake.set()

    async def _look_until_empty(self) -> None:
        while self._waiting:
            self._wake.clear()
            asked = list(self._waiting)
            try:
                found = await self._find(asked)
            except HookledgerError:
                found = None  # until their deadlines: it may answer again
            for event_id in asked if found is not None else ():
                known = found.get(event_id) if found else None
                if known is None or known.state is not State.PROCESSING or known.expired:
                    for future in self._waiting.get(event_id, ()):
                        if not future.done():
                            future.set_result(known)
            try:
                async with asyncio.timeout(EVERY):
                    await self._wake.wait()
            except TimeoutError:
                pass
