"""Blocking calls on one connection, made from the event loop."""

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
"""Seconds to wait for a call that was given up, or for a broken connection to be cleaned up. They go on, if so."""

_cleanups: set[asyncio.Task[None]] = set()


class Blocking:
    """Runs calls one at a time, in a thread of their own. A call cannot be cancelled: its caller waits, then leaves.

    The thread starts with the first call and ends with `end`. In a shared pool, handlers that wait for a row would
    take every thread, and the one that holds the row could not commit.
    """

    def __init__(self) -> None:
        self._thread: _Thread | None = None
        self._running: asyncio.Future[Any] | None = None

    async def __call__(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._running is not None and not self._running.done():
            raise RuntimeError("the connection is still in use by a call that nobody waits for any more")
        call = self._start(lambda: function(*args, **kwargs))
        self._running = call
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call], timeout=PATIENCE)  # so that a commit, say, has happened or not
            raise

    def _start(self, call: Callable[[], R]) -> asyncio.Future[R]:
        if self._thread is None:
            self._thread = _Thread()
        return self._thread.run_call(call)

    async def beside(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `function` in another thread than the calls, whatever they are doing."""
        thread = _Thread()
        try:
            return await thread.run_call(lambda: function(*args, **kwargs))
        finally:
            thread.end()

    async def afterwards(self, function: Callable[[], None]) -> None:
        """Run `function` once the last call is over, and end; wait for that, but not long."""
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
        """Let the thread go; a later call starts another."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None


class _Thread:
    """Runs what it is given, in order. A daemon: a call that never ends must not keep the process."""

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
        future.add_done_callback(_heard)

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
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits for this any more
                loop.call_soon_threadsafe(settle, result, failure)

        self._calls.put(run)
        return future


def _heard(call: asyncio.Future[Any]) -> None:
    if not call.cancelled():
        call.exception()
