"""Log failures: the first of each kind with its traceback, later ones with their number."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

from ..errors import BadArguments, BadResult, CallInTransaction, ForgottenAwait, HookledgerError, NoTransaction
from ..retry import is_outage
from . import lines
from .blame import blame
from .lines import Line
from .traces import excerpt, for_logging

MAX_KINDS = 500
"""Kinds that are remembered; the least recently seen is forgotten first."""
MISTAKES = (BadArguments, BadResult, CallInTransaction, ForgottenAwait, NoTransaction)
"""Errors that Hookledger raises for a mistake in the user's code: their place matters."""


class Reporter:
    """Counts failures by where they happen, in this process."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str, str | None], int] = OrderedDict()

    def tell(self, line: Line, who: str, error: BaseException | None, package: str = "", /, **fields: Any) -> bool:
        """Log an unexpected failure of `who`, and return whether it was one. The first of its kind is an error with
        its traceback, later ones are lines of the usual level with their number."""
        surprise = _unexpected(error)
        if surprise is None:
            return False
        found = blame(surprise, package)
        count = self._count((who, type(found.error).__qualname__, found.place))
        if count > 1:
            lines.tell(line, **fields, failures=count)
        elif exc_info := for_logging(surprise):
            lines.tell(line, level=logging.ERROR, exc_info=exc_info, **fields, failures=count)
        else:
            lines.tell(line, level=logging.ERROR, **fields, failures=count, traceback=excerpt(surprise, package))
        return True

    def _count(self, kind: tuple[str, str, str | None]) -> int:
        count = self._counts[kind] = self._counts.pop(kind, 0) + 1
        if len(self._counts) > MAX_KINDS:
            self._counts.popitem(last=False)
        return count


def _unexpected(error: BaseException | None) -> Exception | None:
    """Return the error if it deserves a traceback: no signal of a handler, no outage. For an effect, the error that
    it raised."""
    if isinstance(error, HookledgerError) and not isinstance(error, MISTAKES):
        error = error.__cause__
        if isinstance(error, HookledgerError):
            return None
    return error if isinstance(error, Exception) and not is_outage(error) else None
