"""Make blocking calls on one connection from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 2.0
"""Seconds to wait for an abandoned call or the cleanup of a broken connection; then they continue unattended."""

_cleanups: set[asyncio.Task[None]] = set()


class Blocking:
    """Runs calls one at a time in its own thread. A call cannot be cancelled: its caller waits, then abandons it.

    The thread starts with the first call and ends with `end`. In a shared pool, handlers that wait for a row could
    occupy every thread, and the one that holds the row could not commit.
    """

    def __init__(self) -> None:
        self._thread: _Thread | None = None
        self._running: asyncio.Future[Any] | None = None

    async def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._running is not None and not self._running.done():
            raise RuntimeError("the connection is in use: an abandoned call is still running")
        call = self._start(lambda: function(*args, **kwargs))
        self._running = call
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call], timeout=PATIENCE)  # so that a commit is over, for example
            raise

    def _start(self, call: Callable[[], R]) -> asyncio.Future[R]:
        if self._thread is None:
            self._thread = _Thread()
        return self._thread.run_call(call)

    async def beside(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `function` in a separate thread, concurrently with the calls."""
        thread = _Thread()
        try:
            return await thread.run_call(lambda: function(*args, **kwargs))
        finally:
            thread.end()

    async def afterwards(self, function: Callable[[], None]) -> None:
        """Run `function` after the last call, then end the thread; wait for that at most PATIENCE seconds."""
        cleanup = asyncio.create_task(self._after(function))
        _cleanups.add(cleanup)
        cleanup.add_done_callback(_cleanups.discard)
        await asyncio.wait([cleanup], timeout=PATIENCE)

    async def _after(self, function: Callable[[], None]) -> None:
        if self._running is not None:
            await asyncio.wait([self._running])
        try:
            await self._start(function)
        finally:
            self.end()

    def end(self) -> None:
        """End the thread; a later call starts another."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None


class _Thread:
    """Runs calls in order. A daemon: a call that never ends must not keep the process alive."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="hookledger-transaction", daemon=True).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def end(self) -> None:
        self._calls.put(None)

    def run_call(self, call: Callable[[], R]) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        future.add_done_callback(_retrieve)

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def run() -> None:
            result, failure = None, None
            try:
                result = call()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(settle, result, failure)

        self._calls.put(run)
        return future


def _retrieve(call: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that asyncio does not log it as lost."""
    if not call.cancelled():
        call.exception()
