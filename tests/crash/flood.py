"""A flood of deliveries: a process of its own that sends as fast as answers come, and notes every answer.

    python -m tests.crash.flood PLAN LOG

As tests.crash.sender, for thousands a second: raw sockets under uvloop, and short lines in the log. An event is sent
until a 2xx arrives.
"""

import asyncio
import json
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import uvloop

from tests.crash.sender import signed

PAUSE = 0.02
"""Seconds before a new connection is tried where none could be made or one was lost."""


class Flood:
    def __init__(self, plan: dict[str, Any], log: TextIO) -> None:
        self.port = plan["port"]
        self.log = log
        self.ends = time.monotonic() + plan["deadline"]
        self.waiting = deque(plan["events"])
        self.open = len(self.waiting)
        self.over = asyncio.Event()

    async def run(self, connections: int) -> int:
        """How many events never got a 2xx."""
        tasks = [asyncio.create_task(self._connect()) for _ in range(connections)]
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self.ends - time.monotonic()):
                await self.over.wait()
        except TimeoutError:
            pass
        for task in tasks:
            task.cancel()
        return self.open

    async def _connect(self) -> None:
        """Always one connection, and another when it is lost."""
        loop = asyncio.get_running_loop()
        while not self.over.is_set():
            lost: asyncio.Future[None] = loop.create_future()
            try:
                await loop.create_connection(partial(Line, self, lost), "127.0.0.1", self.port)
                await lost
            except OSError:
                pass
            await asyncio.sleep(PAUSE)

    def answered(self, event: dict[str, Any], status: int) -> None:
        self.log.write(f'{{"id":"{event["id"]}","status":{status},"time":{time.time():.6f}}}\n')
        if 200 <= status < 300:
            self.open -= 1
            if not self.open:
                self.log.flush()
                self.over.set()
        else:
            self.waiting.append(event)


def layout(event: dict[str, Any]) -> bytes:
    body, headers = signed(event)
    lines = [f"POST /{event['source']} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Line(asyncio.Protocol):
    """One connection: the next event when the last one was answered."""

    def __init__(self, flood: Flood, lost: asyncio.Future[None]) -> None:
        self._flood = flood
        self._lost = lost
        self._sent: dict[str, Any] | None = None
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def _next(self) -> None:
        if not self._flood.waiting:  # the last ones are on their way elsewhere, or come back
            asyncio.get_running_loop().call_later(PAUSE, self._later)
            return
        self._sent = self._flood.waiting.popleft()
        self._transport.write(layout(self._sent))

    def _later(self) -> None:
        if not self._lost.done():
            self._next()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, end, rest = self._heard.partition(b"\r\n\r\n")
        if not end or len(rest) < _length(head):
            return
        self._heard = b""
        assert self._sent is not None
        event, self._sent = self._sent, None
        status = int(head[9:12])
        self._flood.answered(event, status)
        if status == 503:
            asyncio.get_running_loop().call_later(PAUSE, self._later)
        else:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sent is not None:
            self._flood.answered(self._sent, -1)
            self._sent = None
        if not self._lost.done():
            self._lost.set_result(None)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())

    async def run() -> int:
        with Path(sys.argv[2]).open("a", buffering=1 << 16) as log:
            return await Flood(plan, log).run(plan["connections"])

    return 1 if uvloop.run(run()) else 0


if __name__ == "__main__":
    sys.exit(main())
