"""SQLite connections as they must be: current library, WAL, synchronous=FULL, checkpoints elsewhere."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import apsw

from ...errors import BadData, ConfigError, HookledgerError, SchemaMismatch, TransactionTooLong, Unavailable
from .files import Connection, check_others, create, identity, unwritable
from .watch import WRITER, LockWatch

T = TypeVar("T")

MINIMUM = (3, 51, 3)
"""Every older build can corrupt a WAL database that two connections use."""

PAGE = 1024
"""Bytes. Identities come in no order, so each new event writes a page for its own: a quarter of SQLite's usual
size halves what the log takes, and reading was measured to cost the same."""

TURN = 0.001
"""Seconds between two tries to get a lock."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Reader = Callable[[Any], Any]
_TIMES = re.compile(r"at|since|until|slot|\w+_at|\w+_until")
_IDS = re.compile(r"id|parent|\w+_id")
_DATA = (apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.RangeError)


class Run(Protocol):
    """Runs a job on the store's connection. `queued`: behind the handlers that wait for it."""

    def __call__(self, job: Callable[[apsw.Connection], T], /, *, queued: bool = False) -> Awaitable[T]: ...


class Row(tuple[Any, ...]):
    """A row that answers to positions and to column names."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names[key] if isinstance(key, str) else key)


def check_version() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < MINIMUM:
        need = ".".join(map(str, MINIMUM))
        raise ConfigError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a database in WAL mode: {need} or newer is needed "
            "(pip install -U apsw)"
        )


def connect(path: Path, *, wait: float, may_create: bool = False) -> Connection:
    """`wait`: how many seconds to queue for the write lock. Only a migration creates the file: a mistyped name
    must not become an empty database."""
    check_others(path)
    if may_create:
        create(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if may_create else 0)
    at_path = identity(str(path))
    try:
        connection = Connection(str(path), flags=flags)
        if may_create:  # of a new file only; the size of one that exists stays
            connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.set_busy_handler(patience(wait))
        _use_wal(connection, time.monotonic() + wait)
        connection.execute("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY")
        connection.remember_files(path, at_path)
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        if (at_path or may_create) and (why := unwritable(path)):
            raise apsw.ReadOnlyError(why) from error  # to SQLite, a log that it cannot make is a missing file
        raise
    return connection


def patience(wait: float) -> Callable[[int], bool]:
    """Return a busy handler. SQLite's own timeout sleeps longer after each try, up to 0.1 s: the process that has
    waited longest tries least often, and under constant writes rarely finds the lock free."""
    deadline = 0.0

    def again(tries: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if tries == 0:
            deadline = now + wait
        if now < deadline:
            time.sleep(TURN)
        return now < deadline

    return again


def _use_wal(connection: apsw.Connection, deadline: float) -> None:
    """The busy timeout does not cover the change to WAL, which several processes may try on a new file
    concurrently."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def rows(connection: apsw.Connection, sql: str, args: Sequence[Any] = ()) -> list[Row]:
    """Run one statement, keep all its rows with their names; values are as SQLite stores them."""
    kind, _, found = _fetched(connection.execute(sql, args))
    return [kind(row) for row in found]


def read_rows(connection: apsw.Connection, sql: str, args: Sequence[Any] = ()) -> list[Row]:
    """The same for a query of ours: the names of its columns tell ids and times, which become UUID and datetime."""
    return converted(connection.execute(sql, args))


def converted(cursor: apsw.Cursor) -> list[Row]:
    kind, readers, found = _fetched(cursor)
    if not any(readers):
        return [kind(row) for row in found]
    return [kind([read(value) if read else value for read, value in zip(readers, row, strict=True)]) for row in found]


def _fetched(cursor: apsw.Cursor) -> tuple[type[Row], Sequence[Reader | None], list[Any]]:
    """All rows: a value that cannot be converted must not leave the statement open on this connection."""
    try:
        names = tuple(column[0] for column in cursor.get_description())
    except apsw.ExecutionCompleteError:  # how apsw says that there are no rows
        return Row, (), []
    return *_row_type(names), cursor.fetchall()


@cache
def _row_type(names: tuple[str, ...]) -> tuple[type[Row], Sequence[Reader | None]]:
    kind = type("Row", (Row,), {"names": {name: place for place, name in enumerate(names)}})
    return kind, [id_of if _IDS.fullmatch(name) else time_of if _TIMES.fullmatch(name) else None for name in names]


def id_of(value: Any) -> Any:
    return UUID(bytes=value) if isinstance(value, bytes) else value  # a provider's id is text


def time_of(value: Any) -> Any:
    return EPOCH + timedelta(microseconds=value) if isinstance(value, int) else value


def in_transaction(connection: Connection, job: Callable[[Connection], T], watch: LockWatch, who: int = WRITER) -> T:
    connection.begin()
    watch.locked(who)
    try:
        result = job(connection)
        connection.commit()
    except BaseException:
        # A full disk may have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    finally:
        watch.unlocked(who)
    return result


def translate(error: apsw.Error | OverflowError | ValueError) -> HookledgerError:
    """What a driver's error means to the caller."""
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_TRIGGER:  # the only triggers are those of a copy
        return Unavailable(str(error))
    # The last two: what no column can hold, such as 1e300 seconds or lone surrogates.
    if isinstance(error, (*_DATA, OverflowError, ValueError)):
        return BadData(str(error))
    if isinstance(error, apsw.CantOpenError):
        return SchemaMismatch("SQLite: the file cannot be opened; if it does not exist yet, run 'hookledger migrate'")
    if isinstance(error, apsw.SQLError):
        return SchemaMismatch(f"{error}: run 'hookledger migrate'")
    return Unavailable(f"SQLite: {error}")


class Writer(threading.Thread):
    """The one thread that owns the process' write connection.

    While a handler's transaction is open, the thread waits for the next statement only until the limit; then it rolls
    back, whatever the handler or the event loop are doing.
    """

    def __init__(self, path: Path, *, wait: float, limit: float, watch: LockWatch) -> None:
        super().__init__(name="hookledger-sqlite", daemon=True)
        self._path = path
        self._wait = wait
        self._limit = limit
        self._watch = watch
        self._jobs: queue.SimpleQueue[tuple[Callable[[Connection], Any], Callable[..., object]] | None]
        self._jobs = queue.SimpleQueue()
        self._deadline: float | None = None
        self._ends = self._commits = 0
        self._at_begin = 0, 0
        self._holder: object = None
        self.may_create = False
        self.opened: bool = False
        self.expired: Callable[[bool], None] | None = None
        """Called in this thread when a handler's transaction went over the limit, with whether it had committed."""

    async def run_job(self, job: Callable[[Connection], T]) -> T:
        """Run `job` on the connection, to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._jobs.put((job, lambda result, error: loop.call_soon_threadsafe(deliver, result, error)))
        return await future

    def stop(self) -> None:
        self._jobs.put(None)

    # ── the handler's transaction; all called on this thread ──

    def begin_limited(self, connection: Connection, holder: object) -> None:
        connection.begin()
        self._holder = holder
        self._watch.locked()
        self._deadline = time.monotonic() + self._limit
        self._at_begin = self._ends, self._commits

    def end_limited(self) -> None:
        self._deadline = self._holder = None
        self._watch.unlocked()

    def check_holder(self, holder: object) -> None:
        """A statement that was on its way when the limit struck must not run on its own, outside a transaction."""
        if self._holder is not holder:
            raise TransactionTooLong()

    def has_ended(self, connection: apsw.Connection) -> bool:
        return not connection.in_transaction or self._ends != self._at_begin[0]

    def has_committed(self) -> bool:
        """Unlike an end by rollback, such as a full disk brings about, something was kept."""
        return self._commits != self._at_begin[1]

    # ── the thread ──

    def run(self) -> None:
        connection: Connection | None = None
        while True:
            try:
                job = self._jobs.get(timeout=self._remaining())
            except queue.Empty:
                assert connection is not None
                self._expire(connection)
                continue
            if job is None:
                break
            work, answer = job
            try:
                if connection is None:
                    connection = self._open()
                answer(work(connection), None)
            except apsw.InterruptError:
                assert connection is not None
                self._expire(connection)
                answer(None, TransactionTooLong())
            except BaseException as error:
                answer(None, error)
        if connection is not None:
            connection.close()

    def _open(self) -> Connection:
        connection = connect(self._path, wait=self._wait, may_create=self.may_create)
        self.opened = True

        def ended() -> bool:
            self._ends += 1
            return False

        def committed(*_: object) -> int:
            self._commits += 1
            return apsw.SQLITE_OK

        connection.set_commit_hook(ended)
        connection.set_rollback_hook(lambda: ended() or None)  # type: ignore[arg-type]
        connection.set_wal_hook(committed)  # unlike the commit hook: when it has happened
        # A single statement may be over the limit too: looked at every so many steps of SQLite's machine.
        connection.set_progress_handler(self._overdue, 20_000)
        return connection

    def _overdue(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _expire(self, connection: apsw.Connection) -> None:
        self._deadline = self._holder = None
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        self._watch.unlocked()
        if self.expired is not None:
            self.expired(self.has_committed())


class Checkpointer(threading.Thread):
    """Moves the WAL into the database on a separate connection, so that no ack waits for it."""

    FROM = 4 * 2**20
    RESTART_FROM = 64 * 2**20
    PATIENCE = 0.05
    """Seconds that writers may be made to wait for readers at RESTART_FROM; more in proportion, up to one second."""

    def __init__(self, path: Path, every: float = 1.0) -> None:
        super().__init__(name="hookledger-checkpoint", daemon=True)
        self._path = path
        self._every = every
        self._halt = threading.Event()
        self._frames = 0  # of the log, when it was last looked at

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        connection: apsw.Connection | None = None
        while not self._halt.wait(self._every):
            try:
                if self._path.with_name(self._path.name + "-wal").stat().st_size >= self.FROM:
                    connection = connection or connect(self._path, wait=self.PATIENCE)
                    self._move(connection)
            except (OSError, apsw.Error):
                # Busy, full or gone: the next write raises the error. Try again in a second.
                continue
        if connection is not None:
            connection.close()

    def _move(self, connection: apsw.Connection) -> None:
        """Where others write all the time, the WAL begins again only while they are made to wait. That must not take
        long: all of it is moved beside them first and brought to disk, and only the last bit before them."""
        last = self._frames
        self._frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        limit = self.RESTART_FROM / connection.pragma("page_size")
        if self._frames < limit or self._frames == last:  # without new frames the next writer restarts the log
            return
        _bring_to_disk(self._path)
        frames, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if frames - moved < limit / 8:  # else a reader needs older frames, and a restart would fail
            connection.set_busy_handler(patience(min(self.PATIENCE * frames / limit, 1.0)))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)


_kept_open: dict[tuple[int, int], int] = {}


def _bring_to_disk(path: Path) -> None:
    """On a descriptor that is never closed: to close any of a file takes all of the process' locks on it away, those
    of SQLite too. And not by SQLite's hands: apsw would keep the interpreter's lock all the while."""
    there = path.stat()
    key = there.st_dev, there.st_ino
    if key not in _kept_open:
        _kept_open[key] = os.open(path, os.O_RDONLY)
    os.fsync(_kept_open[key])
