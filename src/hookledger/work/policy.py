"""What an effect's policy makes of the end of a call."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import Refused, Wait
from ..ledger import Effect as Entry
from ..states import CallOutcome, Repeat
from .effect import Effect
from .perform import Ending
from .retry import is_permanent

log = logging.getLogger(__name__)


def say_repeated(effect: Effect[Any, Any], entry: Entry) -> None:
    """Warn of a call that is repeated after an unknown outcome, where its policy accepts duplicates."""
    if effect.policy.repeat is Repeat.ACCEPT:
        log.warning("effect %s %r may happen twice: repeated after an unknown outcome", entry.name, entry.key)


def may_go_on(effect: Effect[Any, Any], entry: Entry, ending: Ending) -> float | None:
    """When to go on without a person after this ending, the outbox as well as a handler; None: not at all."""
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
    if policy.may_repeat(entry.doubtful_for):
        return delay if effect.checker is None else max(delay, policy.grace)
    if effect.checker is None:
        return None
    # Asked without a call, so nothing is counted: the longer it could not tell, the seldomer it is asked.
    return max(delay, policy.grace, min(policy.retry.longest, (entry.doubtful_for or 0.0) / 2))
