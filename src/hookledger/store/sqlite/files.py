"""The files of an open SQLite database: whether its path still leads to them."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

import apsw

from ...errors import Unavailable

Identity = tuple[int, int]
Files = dict[str, Identity | None]
"""Device and inode of the database, of its log and of the log's index, by path; the database first."""


def identity(path: str) -> Identity | None:
    """Device and inode of the file at a path; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - three for each commit: a Path would double what they cost
    except OSError:
        return None
    return found.st_dev, found.st_ino


def create(path: Path) -> None:
    """An empty file for its owner alone, unless there is one. SQLite gives its log and index the same mode."""
    with contextlib.suppress(OSError):  # it exists, or SQLite says why it cannot be made
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def unwritable(path: Path) -> str | None:
    """Why nothing can be written at a path, and what to do; None where nothing stands against it. Looks without
    opening: closing a file drops all of SQLite's locks on it."""
    folder, at = path.parent, path if path.exists() else path.parent
    with contextlib.suppress(OSError):
        if os.statvfs(at).f_flag & os.ST_RDONLY:
            return f"{path} cannot be written: its disk is mounted read-only; mount it for writing"
        if path.exists() and not os.access(path, os.W_OK):
            return f"{path} cannot be written: its mode or owner forbids it; give this user write permission"
        if not os.access(folder, os.W_OK):
            return f"{path} needs a log beside it: {folder} cannot be written; give this user write permission there"
    return None


def lost(files: Files) -> str | None:
    """Return the first path that no longer leads to its file."""
    return next((path for path, known in files.items() if known is None or identity(path) != known), None)


def check(files: Files) -> None:
    """Raise Unavailable unless each path still leads to its file."""
    if path := lost(files):
        raise Unavailable(
            f"SQLite: {path} was deleted, renamed or replaced while it was open: what is recorded now would be lost; "
            "put it back, or delete the -wal and -shm files of the old one and restart on the new one"
        )


def check_others(path: Path) -> None:
    """Raise Unavailable if a connection of this process has another file open under this path.

    SQLite writes the log beside a file into that file: opening the new file would write the old one's log into it.
    """
    with _opened_lock:
        others = [connection.files for connection in _opened]
    for files in others:
        if next(iter(files)) == str(path):
            check(files)


class Connection(apsw.Connection):
    """A connection that knows which files it opened.

    SQLite keeps all three in place while any connection is open. If one of them is another file now, it was deleted,
    renamed or replaced, and what is committed here will not be found at the path after a restart. Content copied over
    the same file goes unnoticed.
    """

    files: Files
    _lost = False

    def remember_files(self, path: Path, database: Identity | None) -> None:
        """`database`: what was at the path before the connection was opened."""
        self.pragma("schema_version")  # opens the log, which a new database does only when it is used
        beside = self.filename_wal, f"{self.filename}-shm"
        self.files = {str(path): database, **{name: identity(name) for name in beside}}
        with _opened_lock:
            _opened.add(self)
        self.check_files()

    def check_files(self) -> None:
        """Raise Unavailable unless the paths still lead to the files that were opened."""
        path = lost(self.files)
        self._lost = path is not None
        if path is None:
            return
        if path != next(iter(self.files)):
            # The database is in place: what only the lost log has is written into it while we have that open. If a
            # lock prevents it, the next write tries again.
            with contextlib.suppress(apsw.Error):
                self.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        check(self.files)

    def close(self, *how: Any) -> None:
        with _opened_lock:
            _opened.discard(self)
        super().close(*how)

    def begin(self) -> None:
        """BEGIN IMMEDIATE: a lock upgrade in the middle would ignore the busy timeout."""
        if self._lost:
            self.check_files()
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Raises Unavailable after the commit where that went to a lost file."""
        self.execute("COMMIT")
        self.check_files()


_opened: WeakSet[Connection] = WeakSet()
_opened_lock = threading.Lock()
