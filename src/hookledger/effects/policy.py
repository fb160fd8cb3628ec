"""What an effect's policy makes of the end of a call."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import Refused, Wait
from ..ledger import Effect as Entry
from ..retry import is_permanent
from ..states import CallOutcome, Repeat
from .model import Effect
from .perform import Ending

log: logging.Logger = logging.getLogger(__name__)


def warn_repeated(effect: Effect[Any, Any], entry: Entry) -> None:
    """Warn of a call that is repeated after an unknown outcome, where its policy accepts duplicates."""
    if effect.policy.repeat is Repeat.ACCEPT:
        log.warning("effect %s %r may happen twice: repeated after an unknown outcome", entry.name, entry.key)


def continue_after(effect: Effect[Any, Any], entry: Entry, ending: Ending) -> float | None:
    """Return in how many seconds the outbox or a handler continues after this ending; None: an operator decides."""
    policy = effect.policy
    if policy.retry.exhausted(entry.tries, entry.age):
        return None
    if ending.outcome is CallOutcome.REFUSED:
        assert ending.error is not None
        if is_permanent(ending.error):
            return None
        after = ending.error.after if isinstance(ending.error, Refused | Wait) else None
        return policy.retry.delay(entry.tries) if after is None else after
    delay = policy.retry.delay(entry.tries)
    if policy.may_repeat(entry.unknown_for):
        return delay if effect.checker is None else max(delay, policy.grace)
    if effect.checker is None:
        return None
    # Asked without a call, so nothing is counted: the longer it could not tell, the seldomer it is asked.
    return max(delay, policy.grace, min(policy.retry.max_delay, (entry.unknown_for or 0.0) / 2))
