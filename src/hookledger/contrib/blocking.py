"""Blocking calls on one connection, made from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 2.0
"""Seconds to wait for a call that was given up, or for a broken connection to be cleaned up. They go on, if so."""

_cleanups: set[asyncio.Task[None]] = set()


class Blocking:
    """Runs calls in threads, one at a time. A call cannot be cancelled: its caller waits a little, then leaves."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._running is not None and not self._running.done():
            raise RuntimeError("the connection is still in use by a call that nobody waits for any more")
        call = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
        call.add_done_callback(_heard)
        self._running = call
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call], timeout=PATIENCE)  # so that a commit, say, has happened or not
            raise

    async def afterwards(self, function: Callable[[], None]) -> None:
        """Run `function` once the last call is over; wait for that, but not long."""
        cleanup = asyncio.create_task(self._after(function))
        _cleanups.add(cleanup)
        cleanup.add_done_callback(_cleanups.discard)
        await asyncio.wait([cleanup], timeout=PATIENCE)

    async def _after(self, function: Callable[[], None]) -> None:
        if self._running is not None:
            await asyncio.wait([self._running])
        await asyncio.to_thread(function)


def _heard(call: asyncio.Future[Any]) -> None:
    if not call.cancelled():
        call.exception()
