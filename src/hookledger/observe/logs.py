"""Puts the event's id and key into every log line that is written while it is handled."""

from __future__ import annotations

import contextlib
import logging
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


class AddFacts(logging.Filter):
    """Copies the facts onto each record; put on the handler of the root logger."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_about.get() or {}).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
