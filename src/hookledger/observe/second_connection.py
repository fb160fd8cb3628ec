"""Warn about a handler that writes through its own connection: those writes stay even if the event fails.

Uses SQLAlchemy's events and Django's execute wrappers. Reads, and the writes of effects, are fine.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from importlib import import_module
from typing import Any

log: logging.Logger = logging.getLogger(__name__)

WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "TRUNCATE"})
_WROTE = "hookledger wrote"

_handler: ContextVar[str | None] = ContextVar("hookledger_handler", default=None)
_watched: set[str] = set()
_said: set[tuple[str, str]] = set()


@contextlib.contextmanager
def in_handler(name: str | None) -> Iterator[None]:
    """Watch the writes made inside: they should use `event.tx`. None: do not watch, for effects."""
    token = _handler.set(name)
    try:
        yield
    finally:
        _handler.reset(token)


def watch_libraries() -> None:
    """Watch the libraries that the application has imported."""
    for library, module, watch in (
        ("SQLAlchemy", "sqlalchemy.engine", _watch_sqlalchemy),
        ("Django ORM", "django.db", _watch_django),
    ):
        if module in sys.modules and library not in _watched:
            _watched.add(library)
            watch()


def _watch_sqlalchemy() -> None:
    engine, listen = import_module("sqlalchemy.engine"), import_module("sqlalchemy.event").listen

    def execute(connection: Any, cursor: object, statement: str, *rest: object) -> None:
        del cursor, rest
        if _handler.get() is not None and _writes(statement) and not connection.invalidated:
            connection.info[_WROTE] = True

    def end(connection: Any) -> bool:
        if connection.closed or connection.invalidated:  # reading its info would reconnect
            return False
        return bool(connection.info.pop(_WROTE, False))

    def commit(connection: Any) -> None:
        if end(connection):  # not `event.tx`, which commits after the handler
            _tell("SQLAlchemy")

    listen(engine.Engine, "before_cursor_execute", execute)
    listen(engine.Engine, "commit", commit)
    listen(engine.Engine, "rollback", end)


def _watch_django() -> None:
    def execute(run: Callable[..., Any], sql: Any, parameters: Any, many: bool, context: Any) -> Any:
        if _handler.get() is not None and _writes(str(sql)):
            _tell("Django ORM")
        return run(sql, parameters, many, context)

    def created(connection: Any, **_: object) -> None:
        if execute not in connection.execute_wrappers:  # wrappers survive a reconnect
            connection.execute_wrappers.append(execute)

    import_module("django.db.backends.signals").connection_created.connect(created, weak=False)


def _writes(statement: str) -> bool:
    return "".join(statement[:100].split(None, 1)[:1]).upper() in WRITES


def _tell(library: str) -> None:
    handler = _handler.get()
    if handler is None or (handler, library) in _said:
        return
    _said.add((handler, library))
    log.warning(
        "handler %s writes through its own %s connection: those writes stay if the event fails, and a retry "
        "repeats them; write with event.tx, or make it an effect (docs/how-to/your-own-transaction.md)",
        handler,
        library,
    )
