"""R6: on SQLite nobody waits longer than told, and moving the log makes nobody wait long."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from hookledger.store.sqlite.connection import Checkpointer, connect

_SHARED = (1073741826, 510)
"""Where SQLite's connections lock the database file while they have it open."""
SIZE = 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with closing(connect(path, wait=1.0, create=True)) as connection:
        connection.execute("CREATE TABLE t (a BLOB)")
    return path


@pytest.fixture
def writer(path: Path) -> Iterator[apsw.Connection]:
    with closing(connect(path, wait=1.0)) as connection:
        yield connection


def _fill(writer: apsw.Connection, times: int) -> None:
    for _ in range(times):
        writer.execute("INSERT INTO t VALUES (randomblob(?))", (SIZE,))


def _wal(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


def _locked_by_others(path: Path) -> bool:
    """Asked from another process: a process' own locks never stop itself."""
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", code, str(path), *map(str, _SHARED)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 0 or "BlockingIOError" in asked.stderr
    return asked.returncode != 0


class _NeverAlone(apsw.Connection):
    """Whenever it has moved what there was, there is more."""

    writer: apsw.Connection
    reader: apsw.Connection

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
        if mode != apsw.SQLITE_CHECKPOINT_PASSIVE:
            return super().wal_checkpoint(dbname, mode)
        self.reader.execute("BEGIN").execute("SELECT * FROM t")
        _fill(self.writer, 1)
        frames, moved = super().wal_checkpoint(dbname, mode)
        self.reader.execute("COMMIT")
        assert moved < frames
        return frames, moved


def test_the_log_begins_again_although_somebody_always_writes(path: Path, writer: apsw.Connection) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 10 * SIZE
    with closing(_NeverAlone(str(path))) as connection, closing(connect(path, wait=0.0)) as reader:
        connection.writer, connection.reader = writer, reader
        connection.execute("SELECT * FROM t")  # now it knows that there is a log
        for _ in range(50):
            checkpointer._move(connection)
    assert 10 * SIZE < _wal(path) < 15 * SIZE
    right = "SELECT count(*) > 50 AND sum(length(a)) = ? * count(*) FROM t"
    assert writer.execute(right, (SIZE,)).fetchall() == [(1,)]


def test_moving_the_log_loses_none_of_the_locks_of_this_process(path: Path, writer: apsw.Connection) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 1
    checkpointer.PATIENCE = 0.0
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("COMMIT")
    assert _locked_by_others(path)
    with closing(connect(path, wait=0.05)) as connection:
        _fill(writer, 1)
        checkpointer._move(connection)
        assert _locked_by_others(path)
    assert _locked_by_others(path)


def test_who_reads_for_long_keeps_the_log_and_stops_no_writer(path: Path, writer: apsw.Connection) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 1
    checkpointer.PATIENCE = 0.0
    with closing(connect(path, wait=0.0)) as reader, closing(connect(path, wait=0.01)) as connection:
        _fill(writer, 1)
        reader.execute("BEGIN").execute("SELECT count(*) FROM t").fetchall()
        _fill(writer, 1)
        with pytest.raises(apsw.BusyError):
            checkpointer._move(connection)
        _fill(writer, 1)
        reader.execute("COMMIT")
        checkpointer._move(connection)
    assert writer.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_who_waits_for_the_lock_gets_it_when_it_is_free(path: Path, writer: apsw.Connection) -> None:
    begun, free = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(connect(path, wait=1.0)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            begun.set()
            free.wait(10)
            holder.execute("COMMIT")

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(10)
    threading.Timer(0.05, free.set).start()
    with closing(connect(path, wait=10.0)) as patient:
        patient.execute("BEGIN IMMEDIATE")
        assert free.is_set()
        patient.execute("COMMIT")
    thread.join()


def test_who_may_not_wait_hears_it_and_may_try_again(path: Path, writer: apsw.Connection) -> None:
    with closing(connect(path, wait=0.01)) as hasty:
        for _ in range(2):
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(apsw.BusyError):
                hasty.execute("BEGIN IMMEDIATE")
            writer.execute("COMMIT")
            hasty.execute("BEGIN IMMEDIATE")
            hasty.execute("COMMIT")
