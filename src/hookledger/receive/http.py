"""The HTTP/1.1 listener of `hookledger receive`: accepts connections and schedules their requests.

One request at a time per connection, all on the event loop's thread: a fifth of a general server's CPU time
(decision 0015). A proxy in front provides TLS, HTTP/2 and everything else.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections import deque
from collections.abc import Sequence
from email.utils import formatdate
from typing import Protocol

from ..model import Request
from .budget import SMALL, BodyBudget, connections_to_evict
from .connection import Connection
from .request import Limits
from .respond import Answer, Response

MAX_CONNECTIONS = 1024
BACKLOG = 4096
"""Connections that wait to be accepted; beyond it the kernel delays a sender for seconds."""
ACCEPTED = 16
"""Connections accepted in one iteration of the event loop, so that a burst of them is accepted quickly."""
SPARE_FILES = 128
"""Open files reserved for the database, logs and keys."""
GRACE = 10.0
"""Seconds to finish answers at shutdown."""
SWEEP = 1.0
BURST = 32
"""Requests processed together."""
TURNS = 8
"""Large uploads read in one iteration of the event loop, at most 256 KiB of each."""


class Site(Protocol):
    """What the listener serves."""

    def max_body(self, method: str, path: str) -> int:
        """Return the size limit of a body; raise Rejected if nothing accepts the request."""

    def take(self, requests: Sequence[tuple[Request, Answer, float]]) -> None:
        """Process requests, each with the time at which it was complete; call each answer exactly once."""

    def error_response(self, error: Exception) -> Response: ...


class Listener:
    """Serves one site on one address until `stop`."""

    def __init__(self, site: Site, limits: Limits) -> None:
        self.site = site
        self.limits = limits
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._leaving: set[Connection] = set()  # evicted, not closed yet
        self.budget: BodyBudget = BodyBudget(limits.body_bytes, self._arriving, self.loop.time)
        self._max_connections = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)
        self.date: bytes = b""
        self.stopping: bool = False
        self._burst: list[tuple[Connection, Request, float]] = []
        self._turn = 0.0  # about when the requests that come now are complete
        self._large: deque[tuple[Connection, Request, float]] = deque()
        self._next_large: asyncio.TimerHandle | None = None
        self._rested = 0.0  # when the next large request may be processed
        self._queue: deque[Connection] = deque()
        self._stop = asyncio.Event()
        self._empty = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def serve(self, host: str, port: int) -> None:
        self._update_date()
        servers = await self._listen(host, port)
        sweeper = self.loop.create_task(self._sweep(min(SWEEP, self.limits.seconds)))
        try:
            await self._stop.wait()
            for server in servers:
                server.close()
            self.stopping = True
            for connection in list(self.connections):
                connection.finish()
            self._empty.clear()
            if self.connections:
                await asyncio.wait_for(self._empty.wait(), GRACE)
        except TimeoutError:
            pass
        finally:
            sweeper.cancel()
            for connection in [*self.connections, *self._leaving]:
                connection.abort()

    async def _listen(self, host: str, port: int) -> list[asyncio.Server]:
        """Watch the socket several times: uvloop accepts one connection per watcher in an iteration of the loop."""

        def connection() -> Connection:
            return Connection(self)

        first = await self.loop.create_server(connection, host, port, backlog=BACKLOG)
        watched = [os.dup(listening.fileno()) for listening in first.sockets for _ in range(ACCEPTED - 1)]
        others = [
            await self.loop.create_server(connection, sock=socket.socket(fileno=file), backlog=BACKLOG)
            for file in watched
        ]
        return [first, *others]

    def received(self, connection: Connection, request: Request) -> None:
        """Queue a request: all received bytes are parsed before any request is processed (decision 0029)."""
        if len(request.body) > SMALL:
            self._large.append((connection, request, time.perf_counter()))
            self._schedule_large()
            return
        if not self._burst:
            self.loop.call_soon(self._take)
            self._turn = time.perf_counter()  # not for each: reading the clock costs as much as counting a delivery
        self._burst.append((connection, request, self._turn))

    def _take(self) -> None:
        """Process a part of the burst, so that its commit overlaps with verifying the next part."""
        burst, self._burst = self._burst[:BURST], self._burst[BURST:]
        try:
            self._hand_over(burst)
        finally:
            if self._burst:
                self.loop.call_soon(self._take)
                self._turn = time.perf_counter()

    def _schedule_large(self) -> None:
        if self._large and self._next_large is None:
            rest = max(0.0, self._rested - time.monotonic())
            self._next_large = self.loop.call_later(rest, self._take_large)

    def _take_large(self) -> None:
        """Process one, then pause for as long as it took: large unverified bodies get at most half of the time."""
        self._next_large = None
        began = time.monotonic()
        try:
            self._hand_over([self._large.popleft()])
        finally:
            ended = time.monotonic()
            self._rested = ended + (ended - began)
            self._schedule_large()

    def _hand_over(self, requests: list[tuple[Connection, Request, float]]) -> None:
        try:
            self.site.take([(request, connection.answer, received) for connection, request, received in requests])
        except Exception as error:
            for connection, _, _ in requests:
                connection.give_up(error)

    def wait_turn(self, connection: Connection) -> None:
        """Read more of it later, so that large uploads and discarded input do not delay small requests."""
        if not self._queue:
            self.loop.call_soon(self._next_turn)
        self._queue.append(connection)

    def _next_turn(self) -> None:
        for _ in range(min(TURNS, len(self._queue))):
            self._queue.popleft().read_on()
        if self._queue:
            self.loop.call_soon(self._next_turn)

    def _arriving(self) -> list[Connection]:
        return [connection for connection in self.connections if connection.phase == "body"]

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection; evicts others if needed."""
        if len(self.connections) >= self._max_connections:
            for other in connections_to_evict(self.connections, self.loop.time()):
                self.connections.discard(other)
                self._leaving.add(other)
                other.evict(answer=len(self._leaving) <= SPARE_FILES // 2)
        if room := len(self.connections) < self._max_connections:
            self.connections.add(connection)
        return room

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._leaving.discard(connection)
        if not self.connections:
            self._empty.set()

    async def _sweep(self, every: float) -> None:
        """Check all deadlines periodically: far cheaper than a timer per request."""
        while True:
            await asyncio.sleep(every)
            self._update_date()
            now = self.loop.time()
            for connection in [*self.connections, *self._leaving]:
                if connection.deadline < now:
                    connection.overdue()

    def _update_date(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
