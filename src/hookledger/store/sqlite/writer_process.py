"""The process that records arrivals for a receiver, one batch after the other.

It lives as long as its receiver's end of the socket is open; nothing else ends it, so that a Ctrl-C for all of them
still leaves it to write what will be acked.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import apsw
import msgspec
from msgspec import Struct

from ...errors import HookledgerError
from ...model import Arrival, Recorded
from ...states import DeliveryOutcome
from ..text import load
from . import intake
from .connection import connect, in_transaction, translate
from .files import Connection, Files, check
from .watch import LockWatch

log: logging.Logger = logging.getLogger(__name__)

ACCEPTED = DeliveryOutcome.ACCEPTED  # asked of the class each time, a member costs a call


# ── what is said ─────────────────────────────────────────────────────────────


class Batch(Struct, frozen=True, array_like=True):
    now: int
    arrivals: list[Arrival]


class BatchReply(Struct, frozen=True, array_like=True):
    """What became of a batch: an error's name and text, or what each arrival is."""

    error: tuple[str, str] | None = None
    recorded: list[list[Recorded] | None] = []
    """None for one in which everything is accepted."""


LENGTH = struct.Struct("<I")
"""Stands before each message."""
read_batch: Callable[[bytes], Batch] = msgspec.msgpack.Decoder(Batch).decode
read_reply: Callable[[bytes], BatchReply] = msgspec.msgpack.Decoder(BatchReply).decode
read_files: Callable[[str], Files] = msgspec.json.Decoder(Files).decode
_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode


def message(said: Batch | BatchReply) -> bytes:
    encoded = _encode(said)
    return LENGTH.pack(len(encoded)) + encoded


# ── what is done ─────────────────────────────────────────────────────────────


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _, path, files, wait, line = sys.argv
    with socket.socket(fileno=int(line)) as theirs, theirs.makefile("rb") as heard:
        writer = _Writer(Path(path), read_files(files), float(wait))
        with contextlib.suppress(OSError):  # the receiver is gone
            while (request := _next(heard)) is not None:
                theirs.sendall(message(writer.record(read_batch(request))))


def _next(heard: BinaryIO) -> bytes | None:
    """None at the end, be it in the middle of a request: no reply is awaited."""
    length = heard.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(length)
    request = heard.read(size)
    return request if len(request) == size else None


class _Writer:
    """`files`: those that the receiver has open. The writer process writes to no others."""

    def __init__(self, path: Path, files: Files, wait: float) -> None:
        self._path = path
        self._files = files
        self._wait = wait
        self._watch = LockWatch(None)
        self._sql = load(__package__).__getitem__
        self._connection: Connection | None = None

    def record(self, batch: Batch) -> BatchReply:
        try:
            if self._connection is None:
                self._connection = self._open()
            recorded = in_transaction(
                self._connection, lambda c: intake.record(c, self._sql, batch.now, batch.arrivals), self._watch
            )
        except Exception as error:
            meaning = store_error(error)
            return BatchReply((type(meaning).__name__, str(meaning)))
        return BatchReply(
            None, [None if all(one.outcome is ACCEPTED for one in found) else found for found in recorded]
        )

    def _open(self) -> Connection:
        check(self._files)  # before a missing log is created
        connection = connect(self._path, wait=self._wait)
        check(self._files)
        return connection


def store_error(error: Exception) -> Exception:
    """The error that the store would raise."""
    if isinstance(error, apsw.Error | OverflowError | ValueError):
        return translate(error)
    if not isinstance(error, HookledgerError):
        log.exception("batch not recorded: internal error")
    return error
