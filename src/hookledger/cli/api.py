"""Runs the operator listener in its own thread, loop and store, so that no acknowledgement waits for a query."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from ..inbox import Inbox
from ..operate.api.listener import ended
from ..receive.client import rate_limit_key

log: logging.Logger = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds to finish running requests after a stop."""


class OperatorListener:
    """Serves health checks and API of one inbox."""

    def __init__(self, inbox: Inbox, started: Callable[[], None] = lambda: None) -> None:
        """`started` is called on the listener's loop."""
        self._inbox = inbox
        self._started = started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = threading.Event()

    async def serve(self) -> None:
        """Serve until stopped; raise here whatever fails in the thread."""
        await asyncio.to_thread(lambda: asyncio.run(self._serve()))

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        from ..operate.api.http import HttpListener

        operator = self._inbox.settings.operator
        server = HttpListener(self._inbox.operator, self._share)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started()
        serving = asyncio.create_task(server.serve(operator.host, operator.port))
        stopping = asyncio.create_task(self._wait(self._stop))
        alerting = asyncio.create_task(self._inbox.operator.send_alerts())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        server.stop()
        try:
            await self._drained(serving)
        finally:
            await ended(alerting)
            await self._inbox.operator.stop()

    def _share(self, peer: str | None) -> str | None:
        """Return the client that limits count; None for a trusted proxy that forwards client addresses."""
        proxies = self._inbox.settings.intake.proxies
        return None if proxies.header is not None and proxies.trusts(peer) else rate_limit_key(peer)

    async def _drained(self, serving: asyncio.Task[None]) -> None:
        """Wait for running requests, then cancel those that take longer than GRACE."""
        if not (await asyncio.wait((serving,), timeout=GRACE))[0]:
            log.warning(
                "shutdown: cancelled %d operator requests that were still running", self._inbox.operator.cut_off()
            )
            await asyncio.wait((serving,), timeout=1.0)
        if serving.done():
            serving.result()

    async def _wait(self, stop: asyncio.Event) -> None:
        if not self._stopped.is_set():  # else stop() came before the loop existed
            await stop.wait()
