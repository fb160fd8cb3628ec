"""The process that runs handlers which answer, for a receiver: one that blocks or dies delays no plain ack.

It lives as long as its receiver's end of the socket is open; nothing else ends it, so that a Ctrl-C for all of them
still leaves it to finish what will be answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import Unavailable
from ..model import Recorded
from ..receive.answering import Answerer, Reply
from .frames import LENGTH, STARTED, Ask, Said, frame, read_ask
from .opened import open_answerer

if TYPE_CHECKING:
    from ..inbox import Inbox
    from .answerer import InlineAnswerer

log: logging.Logger = logging.getLogger(__name__)


async def serve(
    inbox: Inbox, line: socket.socket, *, started: Callable[[InlineAnswerer], None], stuck: Callable[[], None]
) -> None:
    """Answer what comes over this socket until its other end is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    async with inbox.opened():
        pass  # a database problem ends the process, and the receiver says so
    async with contextlib.AsyncExitStack() as stack:
        answerer = await open_answerer(inbox, stack, stuck=stuck)
        started(answerer)
        reader, writer = await asyncio.open_connection(sock=line)
        writer.write(frame(STARTED))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the receiver is gone
            while True:
                (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                _take(answerer, writer, read_ask(await reader.readexactly(size)))
    writer.close()


def _take(answerer: Answerer, writer: asyncio.StreamWriter, ask: Ask) -> None:
    def told(recorded: Recorded) -> None:
        writer.write(frame(Said(ask.number, recorded)))

    def done(reply: Reply | Exception) -> None:
        if isinstance(reply, Reply):
            said = Said(ask.number, reply=reply)
        else:
            cause = reply.cause if isinstance(reply, Unavailable) else "internal"
            said = Said(ask.number, error=(cause, str(reply)))
        writer.write(frame(said))

    try:
        answerer.ask(ask.arrival, ask.left, told, done)
    except Unavailable as error:
        done(error)
