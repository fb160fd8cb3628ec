"""The operator's listener, in a thread with a loop and a store of its own: no ack waits for a reading to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

from ..inbox import Inbox
from ..receive.client import rate_limited_as

log = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds that what is being answered has when we stop."""


class OperatorListener:
    """Health checks and the API of one inbox."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = threading.Event()

    async def serve(self) -> None:
        """Until stopped; whatever goes wrong in the thread is raised here."""
        await asyncio.to_thread(self._run)

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        from ..operate.http import HttpListener

        operator = self._inbox.settings.operator
        server = HttpListener(self._inbox.operator, self._share)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.create_task(server.serve(operator.host, operator.port))
        stopping = asyncio.create_task(self._wait(self._stop))
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        server.stop()
        try:
            await self._drained(serving)
        finally:
            await self._inbox.operator.stop()

    def _share(self, peer: str | None) -> str | None:
        """A proxy that tells whom it speaks for has no limit as one client."""
        proxies = self._inbox.settings.intake.proxies
        return None if proxies.header is not None and proxies.trusts(peer) else rate_limited_as(peer)

    async def _drained(self, serving: asyncio.Task[None]) -> None:
        """What is being answered may end; what would take minutes, or has a reader who does not read, is cut off."""
        if not (await asyncio.wait((serving,), timeout=GRACE))[0]:
            log.warning("%d requests of operators take too long: cut off", self._inbox.operator.cut_off())
            await asyncio.wait((serving,), timeout=1.0)
        if serving.done():
            serving.result()

    async def _wait(self, stop: asyncio.Event) -> None:
        if not self._stopped.is_set():  # else it was said before there was a loop to hear it
            await stop.wait()
