"""HTTP/1.1 for `hookledger receive`: who is served, and in which turn; `connection.py` is one of those served.

One request at a time on each connection, all on the event loop's own thread, which takes a fifth of a general
server's time (decision 0015). TLS, HTTP/2 and all else is left to the proxy before it.
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
from .budget import SMALL, BodyBudget, in_the_way
from .connection import Connection
from .request import Limits
from .respond import Answer, Response

MAX_CONNECTIONS = 1024
BACKLOG = 4096
"""Connections that wait to be accepted; beyond it the kernel makes a sender wait for seconds."""
ACCEPTED = 16
"""Connections accepted in one turn of the event loop: a crowd at the door must not keep a newcomer waiting."""
SPARE_FILES = 128
"""Of the files that the process may open, left for the database, the logs and the keys."""
GRACE = 10.0
"""Seconds that what is being answered has when we stop."""
SWEEP = 1.0
BURST = 32
"""How many requests are taken at once."""
TURNS = 8
"""How many large uploads are read in one turn of the event loop, 256 KiB of each at most."""


class Site(Protocol):
    """What is served."""

    def max_body(self, method: str, path: str) -> int:
        """How many bytes may be sent there; Rejected if nothing may."""

    def take(self, requests: Sequence[tuple[Request, Answer]]) -> None:
        """Each answer is called once, whatever happens."""

    def refuse(self, error: Exception) -> Response: ...


class Listener:
    """Serves one site on one address until it is told to stop."""

    def __init__(self, site: Site, limits: Limits) -> None:
        self.site = site
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._leaving: set[Connection] = set()  # closed for others, and not gone yet
        self.budget = BodyBudget(limits.body_bytes, self._arriving, self.loop.time)
        self._max_connections = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)
        self.date = b""
        self.stopping = False
        self._burst: list[tuple[Connection, Request]] = []
        self._large: deque[tuple[Connection, Request]] = deque()
        self._next_large: asyncio.TimerHandle | None = None
        self._rested = 0.0  # when the next large one may be taken
        self._queue: deque[Connection] = deque()
        self._stop = asyncio.Event()
        self._empty = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def serve(self, host: str, port: int) -> None:
        self._tell_date()
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
        """Several watchers of one socket: uvloop accepts one connection for each in a turn of the event loop."""

        def connection() -> Connection:
            return Connection(self)

        first = await self.loop.create_server(connection, host, port, backlog=BACKLOG)
        watched = [os.dup(listening.fileno()) for listening in first.sockets for _ in range(ACCEPTED - 1)]
        others = [
            await self.loop.create_server(connection, sock=socket.socket(fileno=file), backlog=BACKLOG)
            for file in watched
        ]
        return [first, *others]

    def came(self, connection: Connection, request: Request) -> None:
        """Soon, not now: first all that came is parsed, then all of it is taken (decision 0029)."""
        if len(request.body) > SMALL:
            self._large.append((connection, request))
            self._schedule_large()
            return
        if not self._burst:
            self.loop.call_soon(self._take)
        self._burst.append((connection, request))

    def _take(self) -> None:
        """A part of it at a time, so that the first ones are on their way to disk while the next are looked at."""
        burst, self._burst = self._burst[:BURST], self._burst[BURST:]
        try:
            self._hand_over(burst)
        finally:
            if self._burst:
                self.loop.call_soon(self._take)

    def _schedule_large(self) -> None:
        if self._large and self._next_large is None:
            rest = max(0.0, self._rested - time.monotonic())
            self._next_large = self.loop.call_later(rest, self._take_large)

    def _take_large(self) -> None:
        """One, then a rest as long as it took: strangers' large bodies get half of the time and no more."""
        self._next_large = None
        began = time.monotonic()
        try:
            self._hand_over([self._large.popleft()])
        finally:
            ended = time.monotonic()
            self._rested = ended + (ended - began)
            self._schedule_large()

    def _hand_over(self, requests: list[tuple[Connection, Request]]) -> None:
        try:
            self.site.take([(request, connection.answer) for connection, request in requests])
        except Exception as error:
            for connection, _ in requests:
                connection.give_up(error)

    def wait_turn(self, connection: Connection) -> None:
        """Read more of it later: many large uploads must not hold up small ones, nor what is thrown away."""
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
        """Whether there is room for one more, if need be by closing others."""
        if len(self.connections) >= self._max_connections:
            for other in in_the_way(self.connections, self.loop.time()):
                self.connections.discard(other)
                self._leaving.add(other)
                other.make_way(tell=len(self._leaving) <= SPARE_FILES // 2)
        if room := len(self.connections) < self._max_connections:
            self.connections.add(connection)
        return room

    def left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._leaving.discard(connection)
        if not self.connections:
            self._empty.set()

    async def _sweep(self, every: float) -> None:
        """One look at all connections now and then is far cheaper than a timer for each request."""
        while True:
            await asyncio.sleep(every)
            self._tell_date()
            now = self.loop.time()
            for connection in [*self.connections, *self._leaving]:
                if connection.deadline < now:
                    connection.overdue()

    def _tell_date(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
