"""What an operation is written in: a coroutine over a session, run by each store's driver (decision 0047).

An operation awaits named queries with named parameters, and knows no driver:

    @writes
    async def resume(self, db: Session, source: str, pattern: str, by: Audit) -> None:
        if not await db("resume", source=source, pattern=pattern):
            raise not_paused(source, pattern)
        await record_action(db, "resume", by, Change(describe(source, pattern), ("paused", "open")))

It sees UUID, datetime and bytes; a boolean may come as 0 or 1. On PostgreSQL a deadlock or a serialization failure
runs it again from its start; on SQLite it runs without a pause on the thread that owns the write connection, so it
may await only its queries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..errors import Unavailable
from ..model import Arrival, Recorded

P = ParamSpec("P")
T = TypeVar("T")
BATCH = 1000
"""Rows of a user's own query that are read together."""


class Row(Protocol):
    """A row of an answer, by column names."""

    def __getitem__(self, key: str, /) -> Any: ...


class Session(Protocol):
    """The queries of `store/sql/`, within one transaction."""

    async def __call__(self, query: str, /, **parameters: Any) -> list[Row]: ...

    def piece(self, query: str) -> str:
        """The text of a query, or of a part of one, to be composed with others."""

    async def run(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run what was composed of pieces."""

    async def many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a query once for each of these parameters, in one round trip; it gives no rows. For bodies: a list of
        bytes goes to SQLite as hexadecimal text, which takes ten times as long."""

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        """Record arrivals as the intake does, in this transaction: the one hot path that an operation may need."""


Work = Callable[[Session], Coroutine[Any, Any, T]]


class Database(Protocol):
    """Runs operations on one store."""

    exclusive: bool
    """Whether an open transaction of ours blocks all other writes, as on SQLite."""

    async def write(self, work: Work[T], *, durable: bool = True, limit: float | None = None) -> T:
        """In one transaction. One that is not durable is undone by a crash of the database, wholly or not at all; it
        waits for no disk where that can be had, and hardly for a lock. `limit`: seconds that a query may take, if
        that is more than usual."""

    async def read(self, work: Work[T]) -> T:
        """A short look: each query sees what is committed at its start."""

    async def search(self, work: Work[T]) -> T:
        """A look at many rows, on a connection that no ack waits for. It bounds itself: each query sees what is
        committed at its start, or earlier."""

    async def scan(self, work: Work[T], limit: float) -> T:
        """A look that may take so many seconds, in one snapshot, on a connection that no ack waits for. Raises
        Unavailable after that: the snapshot keeps the database from clearing away old rows."""

    def select(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        """The rows of a user's own SELECT, in batches of BATCH, in a transaction that can write nothing. Raises
        ConfigError with the database's words when it refuses the query."""


class Operations:
    """Operations on one subject."""

    def __init__(self, database: Database) -> None:
        self._database = database


Ops = TypeVar("Ops", bound=Operations)
Operation = Callable[Concatenate[Ops, Session, P], Coroutine[Any, Any, T]]
Method = Callable[Concatenate[Ops, P], Coroutine[Any, Any, T]]


def writes(operation: Operation[Ops, P, T]) -> Method[Ops, P, T]:
    """Run the operation in one durable transaction."""
    return _method(operation, lambda database, work: database.write(work))


def writes_lightly(operation: Operation[Ops, P, T]) -> Method[Ops, P, T]:
    """Run the operation in one transaction that is not durable: what a crash undoes is done again."""
    return _method(operation, lambda database, work: database.write(work, durable=False))


def reads(operation: Operation[Ops, P, T]) -> Method[Ops, P, T]:
    """Run the operation as a short look."""
    return _method(operation, lambda database, work: database.read(work))


def searches(operation: Operation[Ops, P, T]) -> Method[Ops, P, T]:
    """Run the operation as a look at many rows that bounds itself."""
    return _method(operation, lambda database, work: database.search(work))


def scans(limit: float = 10.0) -> Callable[[Operation[Ops, P, T]], Method[Ops, P, T]]:
    """Run the operation as a look that may take so many seconds, in one snapshot."""
    return lambda operation: _method(operation, lambda database, work: database.scan(work, limit))


def _method(
    operation: Operation[Ops, P, T], run: Callable[[Database, Work[T]], Coroutine[Any, Any, T]]
) -> Method[Ops, P, T]:
    @wraps(operation)
    async def method(self: Ops, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(self._database, lambda db: operation(self, db, *args, **kwargs))

    return method


def too_long(limit: float) -> Unavailable:
    return Unavailable(
        f"it took longer than {limit:g} s and was stopped: give it more time, or ask a copy of the database"
    )
