"""Add the event's id and key to every log line written while it is processed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar

_about: ContextVar[dict[str, str] | None] = ContextVar("hookledger_about", default=None)


@contextlib.contextmanager
def about(**facts: str) -> Iterator[None]:
    """Add these facts to every line logged inside, also by the handler's code.

    No fact may be named `event`: structlog uses that name for the message.
    """
    token = _about.set({**(_about.get() or {}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


class RateLimitedLogger:
    """Logs a warning at most once per `every` seconds, with the number of those left out.

    Otherwise a flood of requests or an outage could fill a disk.
    """

    def __init__(self, log: logging.Logger, every: float = 1.0) -> None:
        self._log = log
        self._every = every
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, message: str, *args: object) -> None:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = f" (and {self._left_out} more like it)" if self._left_out else ""
        self._log.warning(message + "%s", *args, more)
        self._next, self._left_out = now + self._every, 0


class AddFacts(logging.Filter):
    """Copies the facts to each record; a filter for the root logger's handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_about.get() or {}).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
