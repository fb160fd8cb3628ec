"""The states of events and effects, and the transitions between them.

States and transitions are defined only here. Tests compare the stores' CHECK
constraints, the contract suite and the diagram in the docs with these tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")


class State(StrEnum):
    """The state of an event."""

    PENDING = "pending"
    """Recorded, released by a worker, or retried, replayed or approved by an operator; due at `due_at`."""

    PROCESSING = "processing"
    """Claimed by a worker under a lease; the attempt was counted at the claim."""

    RETRYING = "retrying"
    """A transient failure, a wait or a crash; due again after a backoff."""

    PROCESSED = "processed"
    """The handler returned and its transaction committed, or an operator settled the event by hand."""

    SKIPPED = "skipped"
    """Not processed, with a reason."""

    FAILED = "failed"
    """A dead letter: permanent error, budget exhausted, or invalid payload."""

    NEEDS_REVIEW = "needs_review"
    """An operator must decide."""

    DISCARDED = "discarded"
    """Closed by an operator, with a reason."""


WAITING = frozenset({State.PENDING, State.RETRYING})
"""A worker may claim these."""

FINAL = frozenset({State.PROCESSED, State.SKIPPED, State.FAILED, State.DISCARDED})
"""`finished_at` is set exactly in these."""


class AttemptOutcome(StrEnum):
    """How one execution of a handler ended."""

    PROCESSED = "processed"
    SKIPPED = "skipped"
    RETRYING = "retrying"
    WAITING = "waiting"
    FAILED = "failed"
    NEEDS_REVIEW = "needs_review"
    CRASHED = "crashed"


class Transition(NamedTuple, Generic[S]):
    """A transition of an event or an effect."""

    name: str
    sources: frozenset[S]
    """Empty: the row is created."""
    target: S
    sentence: str
    attempt: AttemptOutcome | None = None
    """The outcome of the attempt that it ends; None: it ends no attempt."""


def _t(name: str, sources: str, target: str, sentence: str, *, attempt: str | None = None) -> Transition[State]:
    ended = None if attempt is None else AttemptOutcome(attempt)
    return Transition(name, frozenset(map(State, sources.split())), State(target), sentence, ended)


TRANSITIONS: tuple[Transition[State], ...] = (
    _t("claim", "pending retrying", "processing", "A worker claims the event; the attempt counts from here."),
    _t(
        "complete",
        "processing",
        "processed",
        "The handler's transaction and the outcome commit together.",
        attempt="processed",
    ),
    _t("skip", "processing", "skipped", "The handler found nothing to do.", attempt="skipped"),
    _t(
        "skip_unhandled",
        "pending",
        "skipped",
        "No live worker has had a handler for the type for the configured time.",
    ),
    _t("reschedule", "processing", "retrying", "A transient failure: due again after a backoff.", attempt="retrying"),
    _t("wait", "processing", "retrying", "The handler waits; no attempt is consumed.", attempt="waiting"),
    _t(
        "fail",
        "processing",
        "failed",
        "A permanent failure, or the budget of this run is exhausted.",
        attempt="failed",
    ),
    _t("review", "processing", "needs_review", "An operator must decide.", attempt="needs_review"),
    _t("release", "processing", "pending", "A worker releases an event that it did not start."),
    _t("reclaim", "processing", "retrying", "The lease expired: the worker is dead or frozen.", attempt="crashed"),
    _t(
        "dead_letter",
        "processing",
        "failed",
        "The lease expired and the budget of this run is exhausted.",
        attempt="crashed",
    ),
    _t("retry", "failed retrying needs_review", "pending", "An operator retries the event now, in the same run."),
    _t(
        "replay",
        "processed skipped failed discarded needs_review",
        "pending",
        "An operator replays the event as a new run.",
    ),
    _t("discard", "pending retrying failed needs_review", "discarded", "An operator closes the event."),
    _t("approve", "needs_review", "pending", "An operator lets the event pass its review, for one new run."),
    _t("reject", "needs_review", "discarded", "An operator answers the review with no, and closes the event."),
    _t("settle", "needs_review", "processed", "An operator records that the event was settled by hand."),
)

BY_NAME: dict[str, Transition[State]] = {t.name: t for t in TRANSITIONS}


class DeliveryOutcome(StrEnum):
    """How the store classified one arrival."""

    ACCEPTED = "accepted"
    """A new event."""

    DUPLICATE = "duplicate"
    """A known event; only the delivery is recorded."""

    CONFLICT = "conflict"
    """A known key or signed token with other content; quarantined with its bytes, the event unchanged."""

    SAME_BODY = "same_body"
    """Known content under a new id or type that the signature does not cover; quarantined, its bytes kept once."""

    INVALID = "invalid"
    """Authentic but unreadable; recorded with its bytes as a dead letter."""

    RECONCILED = "reconciled"
    """A new event that no delivery brought: imported by reconciliation."""


class KeyOrigin(StrEnum):
    """What the event key was made from, which decides how far it can be trusted."""

    SIGNED_ID = "signed_id"
    """The provider's id, covered by the signature."""

    UNSIGNED_ID = "unsigned_id"
    """The provider's id, not covered by the signature: anyone who captured the body can change it."""

    COMPOSITE = "composite"
    """Several fields together."""

    FUNCTION = "function"
    """The result of the source's key function."""

    DIGEST = "digest"
    """No id: a digest of type and named fields, or of type and content."""

    ARRIVAL = "arrival"
    """No key: each arrival is an event, because the provider only says that something changed."""

    QUARANTINE = "quarantine"
    """An operator accepted a quarantined delivery; the key is the delivery's, with a number."""


# ── effects ──────────────────────────────────────────────────────────────────


class EffectKind(StrEnum):
    """How an effect is performed."""

    ONCE = "once"
    """By the handler's own writes: the row commits in their transaction, as done."""

    CALL = "call"
    """By a call inside the handler, recorded before and after it."""

    LATER = "later"
    """By a call after the handler's commit: the row is the outbox entry."""


class EffectState(StrEnum):
    """The state of an effect."""

    PLANNED = "planned"
    """To be done: an outbox row, or planned again because the call did not happen."""

    STARTED = "started"
    """Committed before the call. It does not show whether the call was sent."""

    DONE = "done"
    """It happened and is not repeated under this key."""

    FAILED = "failed"
    """It certainly did not happen, and is not being retried: not sent, or refused by the remote."""

    UNKNOWN = "unknown"
    """The outcome of its call is unknown: its policy, its check or an operator decides."""

    CANCELLED = "cancelled"
    """An operator decided that it must not be done."""


def _e(name: str, sources: str, target: str, sentence: str) -> Transition[EffectState]:
    return Transition(name, frozenset(map(EffectState, sources.split())), EffectState(target), sentence)


EFFECT_TRANSITIONS: tuple[Transition[EffectState], ...] = (
    _e("plan", "", "planned", "The outbox row is in the handler's transaction."),
    _e("adopt", "planned failed", "planned", "A handler plans its call, which did not happen, in the outbox."),
    _e("once", "", "done", "The handler's own writes are the effect."),
    _e("begin", "", "started", "Committed before the first call of a handler's effect."),
    _e("start", "planned failed unknown", "started", "Committed before each call, with a new fencing token."),
    _e(
        "finish",
        "started unknown planned failed cancelled",
        "done",
        "The call returned, perhaps late; or a check or an operator found that it happened.",
    ),
    _e("postpone", "started unknown", "planned", "Not sent or refused: the outbox retries after a backoff."),
    _e("fail", "started unknown", "failed", "Not sent or refused, and not retried automatically."),
    _e("mark_unknown", "started", "unknown", "Timeout, reset, 5xx, or the lease expired."),
    _e(
        "reopen",
        "unknown failed done",
        "planned",
        "A check or an operator found that it did not happen; a done effect only if an operator had marked it done.",
    ),
    _e(
        "repeat",
        "done cancelled",
        "planned",
        "An operator repeats it in the run that a replay begins; a `once` is superseded.",
    ),
    _e("try", "planned failed", "planned", "An operator retries it now in the outbox, with a new budget."),
    _e("cancel", "planned failed", "cancelled", "An operator decided that it must not be done."),
)


class CallOutcome(StrEnum):
    """How one physical call ended; None while it runs, or when its worker died."""

    DONE = "done"
    """The remote did it."""

    REFUSED = "refused"
    """Not sent, or refused by the remote: it certainly did not happen."""

    UNKNOWN = "unknown"
    """Anything else."""


class Repeat(StrEnum):
    """What Hookledger may do about an unknown outcome; part of each effect's declaration."""

    SAFE = "safe"
    """Repeat: the effect is idempotent."""

    KEYED = "keyed"
    """Repeat within the window in which the remote remembers the idempotency key."""

    ACCEPT = "accept"
    """Repeat, with a warning in the log: duplicates are acceptable."""

    NEVER = "never"
    """An operator decides."""


class CircuitState(StrEnum):
    """Whether a downstream is called."""

    CLOSED = "closed"
    """It works."""

    OPEN = "open"
    """It failed too often in a row, or an operator tripped it: no calls."""

    HALF_OPEN = "half_open"
    """One trial call is in flight; its result decides."""
