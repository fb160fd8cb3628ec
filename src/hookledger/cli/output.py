"""Output that may be lost: a full disk, or a pipe that is closed or not read, must not stop a process that records
deliveries."""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import queue
import select
import stat
import sys
import threading
import time
from typing import Any, NoReturn, TextIO

log: logging.Logger = logging.getLogger(__name__)

MOST = 4 * 1024 * 1024
"""Bytes kept for a slow reader; more is dropped."""
PATIENCE = 1.0
"""Seconds without progress after which an exiting process drops the rest."""

_queued: list[tuple[TextIO, _Queued]] = []


class _Lossy(io.FileIO):
    """Accepts all data, and writes as much of it as possible."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(memoryview(data).cast("B")) if written is None else written


class _Queued(_Lossy):
    """Passes data to a writer thread, so that a reader that does not read delays no other thread.

    `write` is called under the lock of the buffer above, so only one thread changes the counters.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._thread: threading.Thread | None = None
        self._lost = 0

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        if self._thread is None or not self._thread.is_alive():  # not started, or lost in a fork
            self._begin()
        if self._given > self._taken and self._given - self._taken + len(chunk) > MOST:
            self._lost += 1
        else:
            self._given += len(chunk)
            self._chunks.put(chunk)
        return len(chunk)

    def _begin(self) -> None:
        self._chunks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._given = self._taken = 0
        self._thread = threading.Thread(target=self._run, name="hookledger-output", daemon=True)
        with contextlib.suppress(RuntimeError):  # the process is exiting
            self._thread.start()

    def _run(self) -> None:
        while True:
            chunk = self._chunks.get()
            rest = memoryview(chunk)
            while rest:
                select.select([], [self], [])  # the pipe may be in non-blocking mode
                rest = rest[super().write(rest) :]
            self._taken += len(chunk)
            if self._lost and self._chunks.empty():
                lost, self._lost = self._lost, 0
                log.warning("%d lines of output were lost: the reader did not read them", lost)

    def drain(self) -> None:
        """Wait until everything is written; give up after PATIENCE without progress."""
        seen, until = -1, 0.0
        while self._thread is not None and self._given > self._taken:
            if self._taken != seen:
                seen, until = self._taken, time.monotonic() + PATIENCE
            elif time.monotonic() > until:
                return
            time.sleep(0.005)


def lossy(stream: TextIO | None, *, queued: bool = False) -> TextIO | None:
    """Return the stream without its errors and, if `queued`, without its delays. A stream without a file is returned
    unchanged."""
    try:
        number = stream.fileno() if stream is not None else -1
    except (OSError, ValueError):  # a test's buffer, or closed
        return stream
    if stream is None or number < 0:
        return stream
    queued = queued and not stat.S_ISREG(os.fstat(number).st_mode)  # a regular file never blocks
    raw = _Queued(number) if queued else _Lossy(number, "w", closefd=False)
    made = io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=True)
    if isinstance(raw, _Queued):
        _queued.append((made, raw))
    return made


def lose_status() -> None:
    """Make stderr lossy: a status message never fails a command."""
    _occupy()
    sys.stderr = lossy(sys.stderr)


def lose_everything() -> None:
    """Make stdout and stderr lossy and queued, for long-running processes."""
    atexit.register(_drain)
    sys.stdout, sys.stderr = lossy(sys.stdout, queued=True), lossy(sys.stderr, queued=True)


def end_now(code: int) -> NoReturn:
    """Write what is queued, then exit whatever the threads do."""
    _drain()
    os._exit(code)


def _drain() -> None:
    for stream, raw in _queued:
        with contextlib.suppress(ValueError):  # closed
            stream.flush()
        raw.drain()


def _occupy() -> None:
    """Open /dev/null for closed standard streams: else the next file or socket gets their number and their output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
