"""Every error Hookledger raises, as one tree.

HookledgerError
├── ConfigError            settings that cannot work; raised at start-up
├── Rejected               the request is rejected with a 4xx and never recorded
│   ├── Malformed          the request or its signature header is malformed
│   ├── Unauthentic        signature, timestamp or credentials are wrong
│   ├── Forbidden          a handshake without the verify token, or from an unknown origin
│   ├── UnknownSource      no source has this path
│   ├── WrongMethod        deliveries must be POST requests
│   ├── TooLarge           the body is over the limit
│   ├── WrongEncoding      the content encoding is not accepted
│   ├── TooSlow            the body did not arrive in time
│   ├── NoKey              the source requires an event key and the event has none
│   └── ContentRefused     the content is unreadable or breaks its schema, and the source refuses such events
├── UnreadableError        the body does not have the form that the contract requires
├── Unavailable            the event cannot be recorded now, or the commit's outcome is unknown (503)
├── StoreError             the store refused or failed
│   ├── SchemaMismatch     this release does not support the database's schema
│   ├── BadData            the database refused a row because of its content
│   ├── Blocked            another transaction holds a lock on the row
│   └── WrongState         the row is not in the state the caller expected
├── ListingFailed          the provider's log could not be read completely
│   └── ContentGone        the provider lists an event without its content
├── ClaimLost              the worker no longer owns the event that it processes
├── HandlerCommitted       the handler committed or rolled back `event.tx`
│   └── MayHaveCommitted   the same, perhaps: the worker was stopped before the database told
├── HandlerEnded           the handler cancelled itself or called sys.exit
├── TransactionTooLong     the handler held SQLite's write lock longer than allowed
├── TransactionIdle        PostgreSQL ended the handler's transaction: it was idle longer than allowed
├── BadResult              the result of a handler or effect cannot be stored
├── BadArguments           an effect's key or arguments cannot be stored
├── ForgottenAwait         the handler did not await an effect, a guard or a statement
├── CallInTransaction      the handler called an effect while it held SQLite's write lock
├── NoTransaction          the handler was declared with transaction=False
├── NotGuarded             the request has no event: its route or its caller is not guarded
├── NoTicket               the handler read event.ticket before event.current()
├── UnknownOutcome         call outcome unknown; its policy or check decides
└── Signal                 a handler raises it to decide what happens to its event
    ├── Retry              retry later; counts as an attempt
    │   └── FetchFailed    the provider's API did not answer with the object's current state
    ├── Wait               retry later; does not count as an attempt
    │   ├── CircuitOpen    the downstream's circuit is open
    │   ├── EffectBusy     another worker is performing this effect
    │   ├── GuardBusy      other transactions held what a handler with guards needs
    │   └── CheckPending   the effect's check cannot tell yet whether the call happened
    ├── Permanent          retrying cannot help
    │   └── SchemaBreak    the event's content does not fit its schema, or its handler's body type
    ├── Refused            an effect raises it: the call certainly did not happen
    ├── Skip               there is nothing to do
    │   └── StaleSkipped   a guard has a newer version, and the handler declares stale="skip"
    └── Review             an operator must decide
        ├── NeedsDecision  the call's outcome is unknown and it must not be repeated blindly
        ├── ChangedArguments  the same effect key was used before with other arguments
        ├── ChangedVersion  a guard has a version of another kind
        └── StaleReviewed  a guard has a newer version, and the handler declares stale="review"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from msgspec import UNSET, UnsetType

from .waits import delay, duration, entity

if TYPE_CHECKING:
    from .answer import Answer
    from .ledger import GuardAnswer


class HookledgerError(Exception):
    """Base class of every error that Hookledger raises."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self._default_message())

    @classmethod
    def _default_message(cls) -> str:
        """Return the docstring's first line as a message: lower-case, without the period."""
        line = (cls.__doc__ or "").strip().split("\n", 1)[0].removesuffix(".")
        return line[:1].lower() + line[1:]


class ConfigError(HookledgerError):
    """The configuration is invalid."""


class Rejected(HookledgerError):
    """The request was rejected.

    `reason` is a short code from a closed set: it may become a metric label.
    """

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason.replace("_", " "))
        self.reason = reason


class Malformed(Rejected):
    """The request or its signature header is malformed."""


class Unauthentic(Rejected):
    """The signature, timestamp or credentials are wrong."""


class Forbidden(Rejected):
    """The handshake lacks the source's verify token, or its origin is unknown."""


class UnknownSource(Rejected):
    """No source has this path."""


class WrongMethod(Rejected):
    """Deliveries must be POST requests."""


class TooLarge(Rejected):
    """The body is over the limit."""


class WrongEncoding(Rejected):
    """The content encoding is not accepted."""


class TooSlow(Rejected):
    """The body did not arrive in time."""


class NoKey(Rejected):
    """The source requires an event key and the event has none."""


class ContentRefused(Rejected):
    """The content is unreadable or breaks its schema, and the source refuses such events."""


class UnreadableError(HookledgerError, ValueError):
    """The body does not have the form that the contract requires.

    The message gives the reason and quotes nothing of the body.
    """


class Unavailable(HookledgerError):
    """The event cannot be recorded now, or the outcome of its commit is unknown.

    `cause` is from a closed set, `UNAVAILABLE` in `observe/metrics/counts.py`: it is a metric label.
    """

    cause: str = "database"

    def because(self, cause: str) -> Self:
        """Return it with this cause."""
        self.cause = cause
        return self


class StoreError(HookledgerError):
    """The store refused or failed."""


class SchemaMismatch(StoreError):
    """This release does not support the database's schema."""


class BadData(StoreError):
    """The database refused a row because of its content."""


class Blocked(StoreError):
    """Another transaction holds a lock on this row."""


class WrongState(StoreError):
    """The event is not in the state that the caller expected."""


class ListingFailed(HookledgerError):
    """The provider's log could not be read completely."""


class ContentGone(ListingFailed):
    """The provider lists this event without its content; other events may have theirs."""


class ClaimLost(HookledgerError):
    """This worker no longer owns the event: nothing that it does now may be recorded."""


class HandlerCommitted(HookledgerError):
    """The handler committed or rolled back `event.tx`, so its writes and the outcome do not commit together."""


class MayHaveCommitted(HandlerCommitted):
    """The handler may have committed `event.tx`: the worker was stopped before the database told."""


class HandlerEnded(HookledgerError):
    """The handler called sys.exit or cancelled itself."""


class TransactionTooLong(HookledgerError):
    """The handler held SQLite's write lock longer than [work] transaction_limit, which would stall every ack."""


class TransactionIdle(HookledgerError):
    """The transaction `event.tx` was idle for longer than [work] lease, so PostgreSQL ended it."""


class BadResult(HookledgerError):
    """The result cannot be stored."""


class BadArguments(HookledgerError):
    """The effect's key or arguments cannot be stored."""


class ForgottenAwait(HookledgerError):
    """The handler did not await what it asked of `event` or `event.tx`, so that would not happen."""


class CallInTransaction(HookledgerError):
    """A call while `event.tx` is open would hold SQLite's write lock, and delay every ack, until it returns."""


class NoTransaction(HookledgerError):
    """This handler has no transaction: it was declared with transaction=False."""


class NotGuarded(HookledgerError):
    """The request has no event: its route or its caller is not guarded."""


class NoTicket(HookledgerError):
    """The handler read event.ticket before event.current() drew one: await event.current() first."""


class UnknownOutcome(HookledgerError):
    """Call outcome unknown; its policy or check decides.

    `after`: seconds until that decision, at the earliest. `decision`: raised instead if the event cannot wait.
    """

    def __init__(
        self, message: str | None = None, *, after: float = 0.0, decision: NeedsDecision | None = None
    ) -> None:
        super().__init__(message)
        self.after = after
        self.decision = decision


class Signal(HookledgerError):
    """A handler raises it to decide what happens to its event."""


class Retry(Signal):
    """Retry later; counts as an attempt.

    `after`: seconds that replace the usual backoff.
    """

    def __init__(self, message: str | None = None, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after: float | None = None if after is None else delay(after)


class FetchFailed(Retry):
    """The provider's API did not answer with the object's current state.

    `after`: seconds that it asks to wait; the usual backoff, if that is longer.
    """


class Wait(Signal):
    """Retry later; does not count as an attempt.

    `after`: seconds until then. `for_entity`: wait for an event of this entity, of the same source; retried when
    one has finished; `after`, 5 minutes by default, is then how long until it looks again without that.
    `at_most`: how long it may wait for an entity, from the first time in this run: seconds or text, by default `1h`;
    then an operator decides. An operator decides immediately if `for_entity` is given as None or as empty text: the
    event does not name what it waits for.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        after: float | None = None,
        for_entity: str | int | UnsetType | None = UNSET,
        at_most: float | str | None = None,
    ) -> None:
        self.for_entity: str | None = None if for_entity is UNSET else entity(for_entity)
        """Empty: the handler has named none."""
        if message is None and self.for_entity is not None:
            message = f"waits for {self.for_entity}" if self.for_entity else "waits for an entity"
        super().__init__(message)
        if self.for_entity is None and at_most is not None:
            raise TypeError("at_most needs for_entity: without it an event waits as long as its retry policy allows")
        self.after: float = delay((60.0 if self.for_entity is None else 300.0) if after is None else after)
        self.at_most: float = duration("1h" if at_most is None else at_most)


class CircuitOpen(Wait):
    """The downstream's circuit is open."""


class EffectBusy(Wait):
    """Another worker is performing this effect."""


class GuardBusy(Wait):
    """Other transactions held what a handler with guards needs."""


class CheckPending(Wait):
    """The effect's check cannot tell yet whether the call happened.

    `decision`: raised instead if it never can.
    """

    def __init__(self, message: str | None = None, *, after: float, decision: NeedsDecision) -> None:
        super().__init__(message, after=after)
        self.decision = decision


class Permanent(Signal):
    """Retrying cannot help: the event becomes a dead letter.

    `answer`: what the sender gets from a handler that answers; sent once, not stored.
    """

    def __init__(self, message: str | None = None, *, answer: Answer | None = None) -> None:
        super().__init__(message)
        if answer is not None and not hasattr(answer, "stored"):  # `answer.py` is above errors
            raise TypeError(f"answer is an Answer, not {type(answer).__name__}")
        self.answer: Answer | None = answer


class SchemaBreak(Permanent):
    """The event's content does not fit its schema, or the `body=` type of its handler.

    `details`: every break that was found, a line each. Neither has values of the event.
    """

    def __init__(self, message: str | None = None, *, details: str = "") -> None:
        super().__init__(message)
        self.details: str = details


class Refused(Signal):
    """The call certainly did not happen.

    Effects raise it; the call may be retried, after `after` seconds if given. Not for a timeout or a broken
    connection: their outcome is unknown.
    """

    def __init__(self, message: str | None = None, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after: float | None = None if after is None else delay(after)


class Skip(Signal):
    """There is nothing to do for this event."""


class StaleSkipped(Skip):
    """A guard has a newer version, and the handler declares stale="skip"."""

    def __init__(self, message: str | None = None, *, answer: GuardAnswer | None = None) -> None:
        super().__init__(message)
        self.answer = answer


class Review(Signal):
    """An operator must decide what happens to this event."""


class NeedsDecision(Review):
    """The call's outcome is unknown and it must not be repeated blindly: an operator decides."""

    def __init__(self, message: str | None = None, *, identity: bytes = b"") -> None:
        super().__init__(message)
        self.identity = identity
        """The effect's."""


class ChangedArguments(Review):
    """The same effect key was used before with other arguments."""


class ChangedVersion(Review):
    """A guard has a version of another kind, so the two cannot be compared."""


class StaleReviewed(Review):
    """A guard has a newer version, and the handler declares stale="review"."""

    def __init__(self, message: str | None = None, *, answer: GuardAnswer | None = None) -> None:
        super().__init__(message)
        self.answer = answer
