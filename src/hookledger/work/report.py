"""Failures in the log: the first of each kind with its traceback, the later ones with how many there were."""

from __future__ import annotations

import logging
from collections import OrderedDict

from ..errors import BadArguments, BadResult, CallInTransaction, ForgottenAwait, HookledgerError, NoTransaction
from .blame import blame
from .retry import is_outage
from .traces import excerpt, for_logging

MAX_KINDS = 500
"""That are remembered; the one that was not seen for longest is forgotten."""
MISTAKES = (BadArguments, BadResult, CallInTransaction, ForgottenAwait, NoTransaction)
"""What we raise because of the user's code: its place matters."""


class Reporter:
    """Counts failures by where they happen, in this process."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: OrderedDict[tuple[str, str, str | None], int] = OrderedDict()

    def tell(self, level: int, who: str, words: str, error: BaseException | None, package: str = "") -> None:
        """Log one failure of `who`: `words`, at `level`. The first unexpected one of its kind is an error with its
        traceback, whatever the level."""
        surprise = _unexpected(error) if level > logging.INFO else None
        if surprise is None:
            self._log.log(level, "%s: %s", who, words)
            return
        found = blame(surprise, package)
        count = self._count((who, type(found.error).__qualname__, found.place))
        if count > 1:
            self._log.log(level, "%s: %s (failure %d here since the start)", who, words, count)
        elif exc_info := for_logging(surprise):
            self._log.error("%s: %s", who, words, exc_info=exc_info)
        else:
            self._log.error("%s: %s\n%s", who, words, excerpt(surprise, package))

    def _count(self, kind: tuple[str, str, str | None]) -> int:
        count = self._counts[kind] = self._counts.pop(kind, 0) + 1
        if len(self._counts) > MAX_KINDS:
            self._counts.popitem(last=False)
        return count


def _unexpected(error: BaseException | None) -> Exception | None:
    """What deserves a traceback: not what handlers say by raising it, nor what an outage raises. What an effect
    raised is behind what its handler is told."""
    if isinstance(error, HookledgerError) and not isinstance(error, MISTAKES):
        error = error.__cause__
        if isinstance(error, HookledgerError):
            return None
    return error if isinstance(error, Exception) and not is_outage(error) else None
