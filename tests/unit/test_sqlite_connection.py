"""R6: on SQLite who waits for a lock tries often and not for longer than told, and moving the log stops no writer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from hookledger.store.sqlite import connection
from hookledger.store.sqlite.connection import TURN, Checkpointer, connect, patience

_SHARED = (1073741826, 510)
"""Where SQLite's connections lock the database file while they have it open."""
SIZE = 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with closing(connect(path, wait=1.0, may_create=True)) as first:
        first.execute("CREATE TABLE t (a BLOB)")
    return path


@pytest.fixture
def writer(path: Path) -> Iterator[apsw.Connection]:
    with closing(connect(path, wait=1.0)) as writer:
        yield writer


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


class _Watched(apsw.Connection):
    """Notes what it is asked for. Whenever it has moved what there was beside the others, there is more."""

    writer: apsw.Connection
    reader: apsw.Connection
    asked: list[str]

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None:  # noqa: A002 - as apsw has it
        self.asked.append("patience")
        super().set_busy_handler(callable)

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
        if mode != apsw.SQLITE_CHECKPOINT_PASSIVE:
            self.asked.append("restart")
            return super().wal_checkpoint(dbname, mode)
        self.asked.append("beside")
        self.reader.execute("BEGIN").execute("SELECT * FROM t")
        _fill(self.writer, 1)
        frames, moved = super().wal_checkpoint(dbname, mode)
        self.reader.execute("COMMIT")
        assert moved < frames
        return frames, moved


@pytest.fixture
def watched(path: Path, writer: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Watched]:
    with closing(_Watched(str(path))) as watched, closing(connect(path, wait=0.0)) as reader:
        watched.writer, watched.reader, watched.asked = writer, reader, []
        watched.execute("SELECT * FROM t")  # now it knows that there is a log
        monkeypatch.setattr(os, "fsync", lambda _: watched.asked.append("sync"))
        yield watched


def test_the_log_restarts_although_writes_never_stop(path: Path, watched: _Watched) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 10 * SIZE
    for _ in range(50):
        checkpointer._move(watched)
    assert 10 * SIZE < _wal(path) < 15 * SIZE
    right = "SELECT count(*) > 50 AND sum(length(a)) = ? * count(*) FROM t"
    assert watched.writer.execute(right, (SIZE,)).fetchall() == [(1,)]


def test_only_the_last_bit_is_moved_before_the_others(path: Path, watched: _Watched) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 10 * SIZE
    for _ in range(9):
        checkpointer._move(watched)
    assert watched.asked == ["beside"] * 9
    checkpointer._move(watched)
    assert watched.asked[9:] == ["beside", "sync", "beside", "patience", "restart"]
    assert _wal(path) == _wal_after(watched.writer, path), "what comes next stands where the first stood"


def _wal_after(writer: apsw.Connection, path: Path) -> int:
    _fill(writer, 1)
    return _wal(path)


def test_a_log_to_which_nothing_comes_is_let_alone(path: Path, writer: apsw.Connection) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 1
    _fill(writer, 3)
    with closing(connect(path, wait=0.05)) as mover:
        checkpointer._move(mover)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: pytest.fail("nothing is there to bring to disk"))
            checkpointer._move(mover)
            checkpointer._move(mover)


def test_moving_the_log_keeps_every_lock_of_this_process(path: Path, writer: apsw.Connection) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM = 1
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("COMMIT")
    assert _locked_by_others(path)
    with closing(connect(path, wait=0.05)) as mover:
        _fill(writer, 1)
        checkpointer._move(mover)
        assert _locked_by_others(path)
    assert _locked_by_others(path)


@pytest.mark.parametrize("since", ["long ago", "a moment ago"])
def test_who_reads_keeps_the_log_and_stops_no_writer(path: Path, writer: apsw.Connection, since: str) -> None:
    checkpointer = Checkpointer(path)
    checkpointer.RESTART_FROM, checkpointer.PATIENCE = 3 * SIZE, 0.0
    with closing(connect(path, wait=0.0)) as reader, closing(connect(path, wait=0.0)) as mover:
        _fill(writer, 1 if since == "long ago" else 5)
        reader.execute("BEGIN").execute("SELECT count(*) FROM t").fetchall()
        writer.execute("INSERT INTO t VALUES (1)")
        _fill(writer, 5 if since == "long ago" else 0)
        if since == "long ago":
            checkpointer._move(mover)  # does not even try
        else:
            with pytest.raises(apsw.BusyError):
                checkpointer._move(mover)
        writer.execute("INSERT INTO t VALUES (2)")
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(1 if since == "long ago" else 5,)]
        reader.execute("COMMIT")
        before = _wal(path)
        checkpointer._move(mover)
        assert _wal_after(writer, path) == before


# ── waiting for a lock ──


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 100.0, []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    slept: list[float]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_it_is_tried_in_even_steps_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, again = _Clock(monkeypatch), patience(0.0035)
    for _ in range(2):  # each wait has all of its time, however old the connection is
        tries = 0
        while again(tries):
            tries += 1
        assert clock.slept == [TURN] * 4
        clock.slept.clear()
        clock.now += 1000
    assert not patience(0.0)(0)
    assert clock.slept == []


def test_who_waits_for_the_lock_gets_it_when_it_is_free(
    path: Path, writer: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def freed_at_the_third_try(wait: float) -> Callable[[int], bool]:
        waits.append(wait)
        again = patience(wait)

        def watched(tries: int) -> bool:
            if tries == 2:
                writer.execute("COMMIT")
            assert tries <= 2
            return again(tries)

        return watched

    monkeypatch.setattr(connection, "patience", freed_at_the_third_try)
    with closing(connect(path, wait=10.0)) as patient:
        writer.execute("BEGIN IMMEDIATE")
        patient.execute("BEGIN IMMEDIATE")
        assert not writer.in_transaction
        assert waits == [10.0]
        patient.execute("COMMIT")


def test_who_may_not_wait_hears_it_and_may_try_again(path: Path, writer: apsw.Connection) -> None:
    with closing(connect(path, wait=0.01)) as hasty:
        for _ in range(2):
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(apsw.BusyError):
                hasty.execute("BEGIN IMMEDIATE")
            writer.execute("COMMIT")
            hasty.execute("BEGIN IMMEDIATE")
            hasty.execute("COMMIT")
