"""Arrivals are recorded by the writer process; this is the receiver's end of the socket.

In one process, checking the next ones and writing the last would take turns: Python runs one of them at a time, and
handing over costs more than either. If the writer process dies or hangs, the outcome of its batches is unknown: the
provider gets 503 and redelivers, and a new writer process is started.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from ...errors import BadData, SchemaMismatch, StoreError, Unavailable
from ...model import Arrival, Recorded
from .files import Files
from .writer_process import ACCEPTED, LENGTH, Batch, message, read_reply

log: logging.Logger = logging.getLogger(__name__)

STANDSTILL = 20.0
"""Seconds beyond the wait for the write lock after which a silent writer process is killed."""
LOOKS = 5
"""How often we look within that time. Looks are counted, not seconds: our own standing still is one of them."""
LEAVE = 5.0
"""Seconds it has to exit when it is no longer needed."""
PAUSE = 1.0
"""Seconds between two starts of the writer process."""
UNKNOWN = "SQLite: it is not known what was recorded"
_ERRORS = {error.__name__: error for error in (BadData, SchemaMismatch, StoreError, Unavailable)}


class WriterClient:
    """`files`: gives those that this process has open. `wait`: how long the writer process waits for the lock."""

    def __init__(self, path: Path, files: Callable[[], Awaitable[Files]], *, wait: float) -> None:
        self._path = path
        self._files = files
        self._wait = wait
        self._connection: _WriterConnection | None = None
        self._opening: asyncio.Task[_WriterConnection] | None = None
        self._not_before = 0.0

    async def record(self, now: int, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        try:
            request = message(Batch(now, cast(list[Arrival], arrivals)))
        except ValueError as error:  # lone surrogates
            raise BadData(str(error)) from error
        connection = self._connection
        while connection is None or connection.cut:
            connection = await self._opened()
        reply = read_reply(await connection.ask(request))
        if reply.error is not None:
            name, text = reply.error
            raise _ERRORS.get(name, StoreError)(text)
        return [
            [Recorded(ACCEPTED, event_id) for event_id in arrival.event_ids] if recorded is None else recorded
            for arrival, recorded in zip(arrivals, reply.recorded, strict=True)
        ]

    async def _opened(self) -> _WriterConnection:
        """One opens for all who wait, to the end: who gives up waiting would leave a process behind."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> _WriterConnection:
        try:
            if self._connection is not None and not await self._connection.gone():
                raise Unavailable("SQLite: the killed writer process still runs")
            moment = time.monotonic()
            if moment < self._not_before:
                raise Unavailable("SQLite: the writer process exited at its start")
            self._not_before = moment + PAUSE
            self._connection = await _WriterConnection.open(self._path, await self._files(), self._wait)
        except (OSError, RuntimeError) as error:  # no more processes, files or threads
            raise Unavailable(f"SQLite: the writer process cannot be started: {error}") from error
        finally:
            self._opening = None
        return self._connection

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._connection is not None:
            await self._connection.close()


class _WriterConnection(asyncio.Protocol):
    """One writer process and the socket to it. Replies come in the order of the requests."""

    def __init__(self, process: subprocess.Popen[bytes], patience: float) -> None:
        self._process = process
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._heard = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._interval = patience / LOOKS
        self._looking = False
        self._silent = 0
        self._closing = False
        self._end: asyncio.Future[int] | None = None
        self.cut = False

    @classmethod
    async def open(cls, path: Path, files: Files, wait: float) -> _WriterConnection:
        ours, process = await asyncio.to_thread(_start, path, files, wait)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(process, wait + STANDSTILL), sock=ours)
        return connection

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting.append(answer)
        self._transport.write(request)
        if not self._looking:
            self._looking, self._silent = True, 0
            self._loop.call_later(self._interval, self._look)
        return answer

    def _look(self) -> None:
        """Kill a silent writer process. Callers may stop waiting, as health checks do; a reply is due anyway."""
        self._silent += 1
        self._looking = bool(self._waiting) and not self.cut
        if not self._looking:
            return
        if self._silent < LOOKS:
            self._loop.call_later(self._interval, self._look)
            return
        log.warning("writer process unresponsive: killed, will restart")
        self.end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        self._silent = 0
        while len(self._heard) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._heard)[0]
            if len(self._heard) < end:
                return
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(bytes(self._heard[LENGTH.size : end]))
            del self._heard[:end]

    def connection_lost(self, exc: Exception | None) -> None:
        self.cut = True
        if self._waiting:
            log.error("writer process exited: its deliveries get 503")
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(Unavailable(UNKNOWN))
        self._waiting.clear()
        if not self._closing:
            self.end()

    def end(self) -> None:
        """Kill it immediately; the outcome of its batches is unknown."""
        if self._end is None:
            self.cut = True
            self._process.kill()
            self._transport.abort()
            self._end = self._loop.run_in_executor(None, self._process.wait)

    async def gone(self) -> bool:
        """Whether it has ended, or soon does: one that waits for a broken disk cannot even be killed, and then each
        other one would end up in the same way."""
        return self._end is not None and bool((await asyncio.wait([self._end], timeout=PAUSE))[0])

    async def close(self) -> None:
        self._closing = True
        self._transport.close()
        try:
            await asyncio.to_thread(self._process.wait, LEAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


def _start(path: Path, files: Files, wait: float) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """What is in the folder that we were started in comes last: a `queue.py` there is not ours."""
    find = "import sys; sys.path += sys.argv.pop().split('\\n')"
    code = f"{find}; from hookledger.store.sqlite.writer_process import main; main()"
    places = "\n".join(map(str, [Path(__file__).parents[3], *sys.path]))
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            opened = msgspec.json.encode(files).decode()
            given = [str(path), opened, str(wait), str(theirs.fileno()), places]
            command = [sys.executable, "-P", "-c", code, *given]
            return ours, subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603
    except BaseException:
        ours.close()
        raise
