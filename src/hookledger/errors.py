"""Every error Hookledger raises, as one tree.

HookledgerError
├── ConfigError            settings that cannot work; raised at start-up
├── Rejected               this request will never be recorded (the answer is 4xx)
│   ├── Malformed          the request or its signature header makes no sense
│   ├── Unauthentic        signature, timestamp or credentials are wrong
│   ├── Forbidden          a handshake that does not know what it must
│   ├── UnknownSource      no source has this path
│   ├── WrongMethod        deliveries are POSTed
│   ├── TooLarge           the body is over the limit
│   ├── WrongEncoding      a content encoding that is not accepted
│   ├── TooSlow            the body did not arrive in time
│   └── NoKey              the source demands an event key and none can be derived
├── Unavailable            cannot record safely now, or not known whether it was recorded (503)
├── StoreError             the store refused or failed
│   ├── SchemaMismatch     the database's schema is not one this release works with
│   ├── BadData            the database refused a row because of its content
│   ├── Blocked            another transaction holds the row, and may hold it for long
│   └── WrongState         the row is not in the state the caller expected
├── ListingFailed          the provider's log could not be read to its end
├── ClaimLost              the worker no longer owns the event it works on
├── HandlerCommitted       the handler ended the transaction that was not its own to end
│   └── MayHaveCommitted   the worker was stopped before it knew whether the handler had
├── HandlerEnded           the handler cancelled itself or called sys.exit
├── TransactionTooLong     the handler held SQLite's write lock over the limit
├── TransactionIdle        PostgreSQL ended the handler's transaction: it was idle over the limit
├── BadResult              the handler or effect returned something that cannot be kept
├── BadArguments           an effect's key or arguments cannot be kept
├── ForgottenAwait         the handler did not await an effect it asked for
├── CallInTransaction      a call was asked for while the handler holds SQLite's write lock
├── NoTransaction          the handler was declared with transaction=False
├── UnknownOutcome         nobody knows whether a call happened; its policy or check decides
└── Signal                 how a handler says what should become of its event
    ├── Retry              try again later; counts as an attempt
    ├── Wait               come back later; does not count
    │   ├── CircuitOpen    the downstream is not being called for now
    │   ├── EffectBusy     another worker is at this very effect
    │   └── CheckPending   an effect's check cannot tell yet whether the call happened
    ├── Permanent          trying again cannot help
    ├── Refused            raised in an effect: it certainly did not happen
    ├── Skip               nothing to do, for this reason
    └── Review             a person must decide
        ├── NeedsDecision  whether a call happened is not known, and it must not be repeated
        └── ChangedArguments  the same effect key was used with other arguments
"""

from __future__ import annotations


class HookledgerError(Exception):
    """Something in Hookledger went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().split("\n", 1)[0])


class ConfigError(HookledgerError):
    """The configuration cannot work."""


class Rejected(HookledgerError):
    """The request was refused.

    `reason` is a short code from a closed set: it may become a metric label.
    """

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason.replace("_", " "))
        self.reason = reason


class Malformed(Rejected):
    """The request or its signature header makes no sense."""


class Unauthentic(Rejected):
    """The signature, timestamp or credentials are wrong."""


class Forbidden(Rejected):
    """A handshake without the source's verify token, or from an origin that it does not know."""


class UnknownSource(Rejected):
    """No source has this path."""


class WrongMethod(Rejected):
    """Deliveries are POSTed."""


class TooLarge(Rejected):
    """The body is over the limit."""


class WrongEncoding(Rejected):
    """The content encoding is not accepted."""


class TooSlow(Rejected):
    """The body did not arrive in time."""


class NoKey(Rejected):
    """The source demands an event key and none can be derived."""


class Unavailable(HookledgerError):
    """The event cannot be recorded safely now, or it is not known whether it was."""


class StoreError(HookledgerError):
    """The store refused or failed."""


class SchemaMismatch(StoreError):
    """The database's schema is not one that this release works with."""


class BadData(StoreError):
    """The database refused a row because of its content."""


class Blocked(StoreError):
    """Another transaction holds this row, and is not done yet."""


class WrongState(StoreError):
    """The event is not in the state that the caller expected."""


class ListingFailed(HookledgerError):
    """The provider's log could not be read to its end."""


class ContentGone(ListingFailed):
    """A provider lists one event and gives no content of it; the others may have theirs."""


class ClaimLost(HookledgerError):
    """This worker no longer owns the event: nothing it does now may be kept."""


class HandlerCommitted(HookledgerError):
    """The handler committed or rolled back `event.tx` by itself, so its writes and the outcome are not one."""


class MayHaveCommitted(HandlerCommitted):
    """The handler may have committed `event.tx` by itself: the worker was stopped before the database could say."""


class HandlerEnded(HookledgerError):
    """The handler ended in a way that is meant for programs, not for handlers."""


class TransactionTooLong(HookledgerError):
    """The handler held SQLite's write lock longer than [work] transaction_limit, which would stall every ack."""


class TransactionIdle(HookledgerError):
    """PostgreSQL ended event.tx: it was idle for longer than [work] lease."""


class BadResult(HookledgerError):
    """A handler returns None, a string or a small dict."""


class BadArguments(HookledgerError):
    """The key or the arguments of an effect cannot be kept."""


class ForgottenAwait(HookledgerError):
    """The handler asked for an effect and did not await it, so it would not have happened."""


class CallInTransaction(HookledgerError):
    """A call while `event.tx` is open would hold SQLite's write lock, and every ack, for as long as it takes."""


class NoTransaction(HookledgerError):
    """This handler was declared with transaction=False: it has no transaction to write in."""


class UnknownOutcome(HookledgerError):
    """Nobody knows whether the call happened. Its policy or its check decides, `after` seconds at the earliest.

    `decision`: what it comes to if the event cannot wait for that.
    """

    def __init__(
        self, message: str | None = None, *, after: float = 0.0, decision: NeedsDecision | None = None
    ) -> None:
        super().__init__(message)
        self.after = after
        self.decision = decision


class Signal(HookledgerError):
    """Raised by a handler to say what should become of its event."""


def _delay(after: float) -> float:
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not 0 <= after <= 366 * 86400:
        raise TypeError(f"after is a number of seconds, up to a year, not {after!r}")
    return float(after)


class Retry(Signal):
    """Try again later. Counts as an attempt; `after` seconds instead of the usual backoff."""

    def __init__(self, message: str | None = None, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _delay(after)


class Wait(Signal):
    """Come back later, without consuming an attempt."""

    def __init__(self, message: str | None = None, *, after: float = 60.0) -> None:
        super().__init__(message)
        self.after = _delay(after)


class CircuitOpen(Wait):
    """The downstream is not being called for now: its circuit is open."""


class EffectBusy(Wait):
    """Another worker is at this very effect."""


class CheckPending(Wait):
    """The effect's check cannot tell yet whether the call happened. `decision`: what it comes to if it never can."""

    def __init__(self, message: str | None = None, *, after: float, decision: NeedsDecision) -> None:
        super().__init__(message, after=after)
        self.decision = decision


class Permanent(Signal):
    """Trying again cannot help: the event goes to the dead letter."""


class Refused(Signal):
    """Raised in an effect: it certainly did not happen, and may be tried again, `after` seconds if given.

    The author's word. A time-out or a broken connection is not this: nobody knows then.
    """

    def __init__(self, message: str | None = None, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _delay(after)


class Skip(Signal):
    """There is nothing to do for this event."""


class Review(Signal):
    """A person must decide what becomes of this event."""


class NeedsDecision(Review):
    """Nobody knows whether the call happened, and it must not be repeated blindly: a person decides."""

    def __init__(self, message: str | None = None, *, identity: bytes = b"") -> None:
        super().__init__(message)
        self.identity = identity
        """Of the effect."""


class ChangedArguments(Review):
    """The same effect key was used before with other arguments."""
