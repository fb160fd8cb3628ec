"""Tells the supervisor since when a worker has held SQLite's write lock.

A worker that is frozen inside a transaction stalls every ack and cannot help itself, so the moment it took the lock
stands in a small shared file where its supervisor sees it. Without a supervisor there is no file, and nothing is
written.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "HOOKLEDGER_LOCK_WATCH"
WRITER, HEARTBEAT = 0, 1
"""The two connections of a process that write."""

_SINCE = struct.Struct("2d")
_ONE = struct.Struct("d")


class LockWatch:
    """Both ends of the file; the monotonic clock is the same for all processes of a host."""

    def __init__(self, path: Path | None) -> None:
        self._map: mmap.mmap | None = None
        if path is not None:
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), _SINCE.size)

    @classmethod
    def from_environment(cls) -> LockWatch:
        name = os.environ.get(VARIABLE)
        return cls(Path(name) if name else None)

    @staticmethod
    def create(path: Path) -> None:
        path.write_bytes(_SINCE.pack(0.0, 0.0))

    def locked(self, who: int = WRITER) -> None:
        self._put(who, time.monotonic())

    def unlocked(self, who: int = WRITER) -> None:
        self._put(who, 0.0)

    def clear(self) -> None:
        """Mark the lock as free: its holder is gone."""
        self.unlocked(WRITER)
        self.unlocked(HEARTBEAT)

    def held_for(self) -> float:
        """Seconds since the lock was taken; 0 when it is not held."""
        if self._map is None:
            return 0.0
        since = [moment for moment in _SINCE.unpack_from(self._map, 0) if moment]
        return time.monotonic() - min(since) if since else 0.0

    def _put(self, who: int, moment: float) -> None:
        if self._map is not None:
            _ONE.pack_into(self._map, who * _ONE.size, moment)
