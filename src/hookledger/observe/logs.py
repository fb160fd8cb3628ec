"""Add the facts of the event to every log line written while it is processed, and limit how often lines repeat."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

_NO_FACTS: Mapping[str, object] = {}
_about: ContextVar[Mapping[str, object]] = ContextVar("hookledger_about", default=_NO_FACTS)


@contextlib.contextmanager
def about(**facts: object) -> Iterator[None]:
    """Add these facts to every line logged inside, also by the handler's code.

    No fact may be named `event`: structlog uses that name for the message.
    """
    token = _about.set({**_about.get(), **facts})
    try:
        yield
    finally:
        _about.reset(token)


def known_facts() -> Mapping[str, object]:
    """Return the facts of the event that is being processed."""
    return _about.get()


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


class Limit:
    """Lets `burst` lines pass, then one in `every` seconds, and counts those left out."""

    def __init__(self, burst: int = 10, every: float = 1.0) -> None:
        self._burst = burst
        self._every = every
        self._room = float(burst)
        self._at = time.monotonic()
        self._left_out = 0

    def left_out(self) -> int | None:
        """Return how many lines were left out before this one; None if this one is to be left out."""
        now = time.monotonic()
        self._room = min(self._burst, self._room + (now - self._at) / self._every)
        self._at = now
        if self._room < 1:
            self._left_out += 1
            return None
        self._room -= 1
        count, self._left_out = self._left_out, 0
        return count


class AddFacts(logging.Filter):
    """Copies the facts to each record; a filter for the root logger's handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _about.get().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
