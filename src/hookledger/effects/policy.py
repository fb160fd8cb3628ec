"""An effect's policy: how it is performed, and what may follow a call that was refused or is unknown."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import CheckPending, EffectBusy, NeedsDecision, Refused, Wait
from ..ledger import Effect as Entry
from ..retry import RetryPolicy, is_permanent
from ..states import CallOutcome, Repeat

if TYPE_CHECKING:  # both import this module
    from .model import Effect
    from .perform import Ending

log: logging.Logger = logging.getLogger(__name__)


class Policy(Struct, frozen=True):
    """How an effect is to be performed."""

    repeat: Repeat
    window: float | None = None
    """For `keyed`: how long the remote remembers a key."""
    timeout: float = 10.0
    grace: float = 5.0
    """Added to the timeout before a call without an answer is given up; and how long a check waits after it."""
    retry: RetryPolicy = RetryPolicy()
    downstream: str = ""
    serial: str | None = None
    """The parameter that names the entity whose effects are done in order."""
    volatile: frozenset[str] = frozenset()
    """Parameters that do not tell one effect from another."""
    shared: bool = False
    """One key for all sources."""
    ask_first: bool = False
    """The check is asked before each call too."""

    @property
    def lease(self) -> float:
        """How long one call, and the check before it, may take before its lease expires."""
        return self.timeout * (2 if self.ask_first else 1) + self.grace

    @property
    def patience(self) -> float:
        """How long after its start was asked for a call may still be begun, to be over before its lease is."""
        return max(self.grace, self.lease / 10)

    def may_repeat(self, unknown_for: float | None) -> bool:
        """Whether an unknown outcome may be followed by another call, so long after the first that may have left."""
        if self.repeat is Repeat.KEYED:
            assert self.window is not None
            # The repetition must reach the remote, not only leave us, before it forgets the key.
            return unknown_for is None or unknown_for + self.patience + self.timeout < self.window
        return self.repeat is not Repeat.NEVER


def leave_time(effect: Effect[Any, Any], known: Entry) -> None:
    """Raise EffectBusy or CheckPending while the remote may still be at it: a check that comes too early would find
    nothing.
    """
    left = effect.policy.lease - (effect.policy.lease if known.unknown_for is None else known.unknown_for)
    if effect.checker is not None and effect.policy.repeat in (Repeat.KEYED, Repeat.NEVER) and left > 0:
        words = f"effect {known.name} {known.key!r} may still run at the remote"
        if effect.policy.may_repeat(known.unknown_for):
            raise EffectBusy(words, after=left)
        raise CheckPending(words, after=left, decision=_decision(known))


def check_repeat(effect: Effect[Any, Any], known: Entry) -> None:
    """Raise NeedsDecision, or CheckPending, where the policy does not allow another call after an unknown outcome."""
    if not effect.policy.may_repeat(known.unknown_for):
        again = continue_after_unknown(effect, known)
        if again is not None:
            words = f"effect {known.name} {known.key!r} may have happened, and its check cannot tell yet"
            raise CheckPending(words, after=again, decision=_decision(known))
        raise _decision(known)
    warn_repeated(effect, known)


def warn_repeated(effect: Effect[Any, Any], entry: Entry) -> None:
    """Warn of a call that is repeated after an unknown outcome, where its policy accepts duplicates."""
    if effect.policy.repeat is Repeat.ACCEPT:
        log.warning("effect %s %r may happen twice: repeated after an unknown outcome", entry.name, entry.key)


def continue_after(effect: Effect[Any, Any], entry: Entry, ending: Ending) -> float | None:
    """Return in how many seconds the outbox continues after this ending; None: an operator decides."""
    if ending.outcome is not CallOutcome.REFUSED:
        return continue_after_unknown(effect, entry)
    assert ending.error is not None
    if effect.policy.retry.exhausted(entry.tries, entry.age) or is_permanent(ending.error):
        return None
    after = ending.error.after if isinstance(ending.error, Refused | Wait) else None
    return effect.policy.retry.delay(entry.tries) if after is None else after


def continue_after_unknown(effect: Effect[Any, Any], entry: Entry) -> float | None:
    """Return the same after an unknown outcome: when the outbox continues, or a handler asks the check again."""
    policy = effect.policy
    if policy.retry.exhausted(entry.tries, entry.age):
        return None
    delay = policy.retry.delay(entry.tries)
    if policy.may_repeat(entry.unknown_for):
        return delay if effect.checker is None else max(delay, policy.grace)
    if effect.checker is None:
        return None
    # Asked without a call, so nothing is counted: the longer it could not tell, the seldomer it is asked.
    return max(delay, policy.grace, min(policy.retry.max_delay, (entry.unknown_for or 0.0) / 2))


def _decision(known: Entry) -> NeedsDecision:
    return NeedsDecision(
        f"effect {known.name} {known.key!r} may have happened ({known.error or 'no answer'}): find out, then "
        f"hookledger resolve {known.event_id} {known.name} --happened or --did-not-happen",
        identity=known.identity,
    )
