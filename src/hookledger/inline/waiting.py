"""Waiting for events that other processes handle: one poll for all of them, on a connection that no ack waits for.

Polled, not notified: a transaction pooler drops what a session listens for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ..errors import HookledgerError
from ..observe.logs import RateLimitedLogger
from ..states import State
from ..store.ops.answers import AnswerState

log: logging.Logger = logging.getLogger(__name__)

INTERVAL = 0.03
"""Seconds between two polls."""
PAUSE = 0.5
"""Seconds after one that failed."""

Find = Callable[[Sequence[UUID]], Awaitable[dict[UUID, AnswerState]]]
Waiter = tuple[int, asyncio.Future[AnswerState | None]]
"""The claim number that was seen, and who waits."""


class Waiting:
    """`find`: reads the states of many events. `expired`: whether the lease of one has ended, beyond doubt."""

    def __init__(self, find: Find, expired: Callable[[AnswerState], bool]) -> None:
        self._find = find
        self._expired = expired
        self._waiting: dict[UUID, set[Waiter]] = {}
        self._task: asyncio.Task[None] | None = None
        self._limited_log = RateLimitedLogger(log)

    async def changed(self, seen: AnswerState) -> AnswerState | None:
        """The event's state once it is no longer handled under the claim that was seen, or its lease has ended; None:
        it is gone."""
        waiter: Waiter = (seen.claim, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(seen.id, set()).add(waiter)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        try:
            return await waiter[1]
        finally:
            waiters = self._waiting.get(seen.id, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiting.pop(seen.id, None)

    async def _poll(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(INTERVAL)
                events = list(self._waiting)
                try:
                    found = await self._find(events)
                except HookledgerError as error:
                    self._limited_log.warning("answers of other processes cannot be read: %s", error)
                    await asyncio.sleep(PAUSE)
                    continue
                for event_id in events:
                    self._look(event_id, found.get(event_id))
        finally:
            self._task = None

    def _look(self, event_id: UUID, state: AnswerState | None) -> None:
        for claim, future in self._waiting.get(event_id, ()):
            held = state is not None and state.state is State.PROCESSING and state.claim == claim
            if state is not None and held and state.answer is None and not self._expired(state):
                continue
            if not future.done():
                future.set_result(state)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
