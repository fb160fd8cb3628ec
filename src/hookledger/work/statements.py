"""The statements of `event.tx`, as async handlers and plain functions see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from ..effects.pending import Pending
from ..errors import ConfigError
from ..store.protocol import Statements

T = TypeVar("T")
Asked = Callable[[str, Callable[[], Coroutine[Any, Any, Any]]], Pending[Any]]


class AsyncStatements:
    """The handler's transaction for an async function: one statement that it does not await fails it, because its
    other writes and its outcome would be committed without that one."""

    def __init__(self, tx: Statements, asked: Asked) -> None:
        self._tx = tx
        self._asked = asked

    def execute(self, sql: str, *args: Any) -> Pending[Any]:
        return self._asked("event.tx.execute(…)", lambda: self._tx.execute(sql, *args))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Pending[None]:
        return self._asked("event.tx.executemany(…)", lambda: self._tx.executemany(sql, rows))

    def fetch(self, sql: str, *args: Any) -> Pending[list[Any]]:
        return self._asked("event.tx.fetch(…)", lambda: self._tx.fetch(sql, *args))

    def fetchrow(self, sql: str, *args: Any) -> Pending[Any | None]:
        return self._asked("event.tx.fetchrow(…)", lambda: self._tx.fetchrow(sql, *args))

    def fetchval(self, sql: str, *args: Any) -> Pending[Any]:
        return self._asked("event.tx.fetchval(…)", lambda: self._tx.fetchval(sql, *args))


def wait_in_thread(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Return what a coroutine returns that runs on the event loop; ConfigError on the loop's own thread, which would
    wait for itself."""
    if asyncio._get_running_loop() is loop:
        work.close()
        raise ConfigError(
            "the event of a plain function was used in an async one: await the event of an async function; for async "
            "routes of inbox.idempotent leave out plain=True"
        )
    return asyncio.run_coroutine_threadsafe(work, loop).result()


class SyncStatements:
    """The same transaction for a plain function, which runs in a separate thread."""

    def __init__(self, tx: Statements, loop: asyncio.AbstractEventLoop) -> None:
        self._tx = tx
        self._loop = loop

    def _wait(self, statement: Coroutine[Any, Any, T]) -> T:
        return wait_in_thread(statement, self._loop)

    def execute(self, sql: str, *args: Any) -> Any:
        return self._wait(self._tx.execute(sql, *args))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._wait(self._tx.executemany(sql, rows))

    def fetch(self, sql: str, *args: Any) -> list[Any]:
        return self._wait(self._tx.fetch(sql, *args))

    def fetchrow(self, sql: str, *args: Any) -> Any | None:
        return self._wait(self._tx.fetchrow(sql, *args))

    def fetchval(self, sql: str, *args: Any) -> Any:
        return self._wait(self._tx.fetchval(sql, *args))
