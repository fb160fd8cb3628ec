"""Puts the event's id and key into every log line that is written while it is handled."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar

_about: ContextVar[dict[str, str] | None] = ContextVar("hookledger_about", default=None)


@contextlib.contextmanager
def about(**facts: str) -> Iterator[None]:
    """Every line logged inside, by the handler's own code too, carries these facts.

    None may be called `event`: that is structlog's name for the message.
    """
    token = _about.set({**(_about.get() or {}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


class Seldom:
    """Says a thing at most every so often, with how many times it would have been said.

    What strangers or an outage can cause per request must not fill a disk.
    """

    def __init__(self, log: logging.Logger, every: float = 1.0) -> None:
        self._log = log
        self._every = every
        self._next = float("-inf")
        self._unsaid = 0

    def warning(self, message: str, *args: object) -> None:
        now = time.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        again = f" (and {self._unsaid} more like it)" if self._unsaid else ""
        self._log.warning(message + "%s", *args, again)
        self._next, self._unsaid = now + self._every, 0


class AddFacts(logging.Filter):
    """Copies the facts onto each record; put on the handler of the root logger."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_about.get() or {}).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
