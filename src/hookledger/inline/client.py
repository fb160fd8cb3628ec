"""The receiver's end of the socket to its answering process, which is started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import time
from collections.abc import Callable
from itertools import count
from typing import cast

from ..errors import Unavailable
from ..model import Arrival, Recorded
from ..receive.answering import Done
from .frames import LENGTH, Ask, Said, frame, read_said

log: logging.Logger = logging.getLogger(__name__)

MAX_HELD = 32 * 1024 * 1024
"""Bytes of the deliveries that wait; other deliveries need the rest of `intake.limits.body_bytes`."""
LOOK = 0.5
"""Seconds between two looks at the process. Looks are counted, not seconds: our own standing still is one of them."""
FIRST_DELAY, MAX_DELAY = 0.1, 30.0
"""Seconds before a process that exited at its start is started again: the first time, and at most."""
LEAVE = 2.0
"""Seconds beyond the handlers' own that it has to exit when it is no longer needed."""

Start = Callable[[int], subprocess.Popen[bytes]]
"""Starts the process with this file descriptor."""


class _Asked:
    """A delivery that was sent to the process."""

    __slots__ = ("done", "size", "told")

    def __init__(self, told: Callable[[Recorded], None], done: Done, size: int) -> None:
        self.told = told
        self.done = done
        self.size = size


class AnswerClient:
    """`queue`: deliveries that may wait for it. `patience`: how long the process may be silent while some wait; no
    handler takes longer. `leave`: how long it may take to finish its handlers at the end. `stalls`: whether
    it holds a lock for which every ack waits, and should be killed."""

    def __init__(
        self,
        start: Start,
        *,
        queue: int,
        patience: float,
        leave: float,
        stalls: Callable[[], bool] = lambda: False,
    ) -> None:
        self._start = start
        self._stalls = stalls
        self._queue = queue
        self._patience = patience
        self._leave = leave + LEAVE
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self._held = 0
        """Their bytes."""
        self._connection: _Connection | None = None
        self._unsent: list[bytes] = []
        self._opening: asyncio.Task[None] | None = None
        self._ends = self._early_ends = 0
        """How often it ended; the last times in a row without an answer."""
        self._closing = False
        self._idle = asyncio.Event()
        """Nothing waits, after the end has begun."""

    def open(self) -> None:
        """Start the process; deliveries that come before it has started wait for it."""
        if self._opening is None and not self._closing:
            self._opening = self._loop.create_task(self._open())

    def ask(self, arrival: Arrival, left: float, told: Callable[[Recorded], None], done: Done) -> None:
        """See `Answerer`."""
        if self._closing:
            raise Unavailable("the receiver is stopping").because("answers")
        connection = self._connection
        if len(self._asked) >= self._queue or self._held > MAX_HELD:
            raise Unavailable(f"the queue is full: {len(self._asked)} deliveries are answered").because("queue_full")
        number = next(self._numbers)
        try:
            message = frame(Ask(number, left, arrival))
        except ValueError as error:  # lone surrogates
            raise Unavailable(f"a delivery cannot be handed over: {error}").because("internal") from error
        self._asked[number] = _Asked(told, done, len(message))
        self._held += len(message)
        if connection is None:
            self._unsent.append(message)
            self.open()
        else:
            connection.send(message)

    async def _open(self) -> None:
        if self._ends:
            await asyncio.sleep(min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(self._early_ends, 20)))
        try:
            ours, process = await asyncio.to_thread(self._started)
        except (OSError, RuntimeError) as error:  # no more processes, files or threads
            self._opening = None
            self._ends += 1
            self._early_ends += 1
            self._fail(f"the answering process cannot be started: {error}")
            self.open()
            return
        _, connection = await self._loop.create_connection(
            lambda: _Connection(process, self._said, self._lost, self._patience, self._stalls), sock=ours
        )
        self._opening, self._connection = None, connection
        for message in self._unsent:
            connection.send(message)
        self._unsent.clear()

    def _started(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                return ours, self._start(theirs.fileno())
        except BaseException:
            ours.close()
            raise

    def _said(self, said: Said) -> bool:
        """Pass on what the process says; whether it still owes an answer."""
        if said.number:
            self._early_ends = 0
        if said.recorded is not None:
            if asked := self._asked.get(said.number):
                asked.told(said.recorded)
        elif asked := self._asked.pop(said.number, None):
            self._held -= asked.size
            if said.reply is not None:
                asked.done(said.reply)
            else:
                cause, words = said.error or ("internal", "no reply")
                asked.done(Unavailable(words).because(cause))
        if self._closing and not self._asked:
            self._idle.set()
        return bool(self._asked)

    def _lost(self) -> None:
        self._connection = None
        self._ends += 1
        self._early_ends += 1  # until it has answered again
        self._fail("the answering process exited: it is not known what it did")
        if not self._closing:
            log.error("the answering process exited, and is started again")
            self.open()

    def _fail(self, why: str) -> None:
        self._unsent.clear()
        asked, self._asked, self._held = self._asked, {}, 0
        for one in asked.values():
            one.done(Unavailable(why).because("answers"))
        self._idle.set()

    async def close(self) -> None:
        """Let it finish, and end it."""
        self._closing = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        ends = time.monotonic() + self._leave
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._leave):
                if self._asked and self._connection is not None:
                    await self._idle.wait()
        if self._connection is not None:
            await self._connection.close(max(LEAVE, ends - time.monotonic()))
        self._fail("the receiver was stopped")


class _Connection(asyncio.Protocol):
    """One answering process, and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        said: Callable[[Said], bool],
        lost: Callable[[], None],
        patience: float,
        stalls: Callable[[], bool],
    ) -> None:
        self._process = process
        self._said = said
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._heard = bytearray()
        self._owes = False
        self._silent = 0
        self._ended = False
        """Whether the process has exited, or was killed."""
        self._patience = patience
        self._stalls = stalls
        self._look_timer = self._loop.call_later(LOOK, self._look)

    def send(self, message: bytes) -> None:
        if not self._owes:
            self._owes, self._silent = True, 0
        self._transport.write(message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        self._silent = 0
        start = 0
        while len(self._heard) >= start + LENGTH.size:
            begin = start + LENGTH.size
            end = begin + LENGTH.unpack_from(self._heard, start)[0]
            if len(self._heard) < end:
                break
            self._owes = self._said(read_said(bytes(self._heard[begin:end])))
            start = end
        del self._heard[:start]

    def _look(self) -> None:
        if self._ended:  # at the last look, so that what it said has been read; a child of it still has the socket
            self._transport.abort()
            return
        self._look_timer = self._loop.call_later(LOOK, self._look)
        self._silent = self._silent + 1 if self._owes else 0
        if self._process.poll() is not None:
            self._ended = True
        elif self._silent * LOOK >= self._patience:
            self._kill("the answering process is silent: killed, will restart")
        elif self._stalls():
            self._kill("the answering process holds SQLite's write lock too long: killed, will restart")

    def _kill(self, why: str) -> None:
        log.error(why)
        self._process.kill()
        self._ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._look_timer.cancel()
        self._process.kill()  # it has closed its end, or is as good as gone
        self._loop.run_in_executor(None, self._process.wait)
        self._lost()

    async def close(self, seconds: float) -> None:
        """Close our end, which ends the process when its handlers have finished."""
        process = self._process
        self._lost = lambda: None
        self._look_timer.cancel()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        try:
            await asyncio.to_thread(process.wait, seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        self._transport.abort()
