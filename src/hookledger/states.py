"""The states of an event and of an effect, and the only ways between them.

This table is the single place where a state or a transition is spelled. The
stores' CHECK constraints, the contract suite and the diagram in the docs are
held to it by tests.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where an event stands; each member says how one enters and leaves it."""

    PENDING = "pending"
    """Recorded, given back, or sent again by an operator; due at `due_at`."""

    PROCESSING = "processing"
    """Claimed by a worker under a lease; the attempt was counted at the claim."""

    RETRYING = "retrying"
    """A transient failure or a crash; due again after a backoff."""

    PROCESSED = "processed"
    """The handler and its transaction are done."""

    SKIPPED = "skipped"
    """Decided not to process, with a reason."""

    FAILED = "failed"
    """The dead letter: permanent error, budget exhausted, or invalid payload."""

    NEEDS_REVIEW = "needs_review"
    """A person must decide."""

    DISCARDED = "discarded"
    """Closed by an operator, with a reason."""


WAITING = frozenset({State.PENDING, State.RETRYING})
"""A worker may claim these."""

FINAL = frozenset({State.PROCESSED, State.SKIPPED, State.FAILED, State.DISCARDED})
"""`finished_at` is set exactly in these."""


class Transition(NamedTuple):
    name: str
    sources: frozenset[State]
    target: State
    sentence: str


def _t(name: str, sources: str, target: str, sentence: str) -> Transition:
    return Transition(name, frozenset(State(s) for s in sources.split()), State(target), sentence)


TRANSITIONS: tuple[Transition, ...] = (
    _t("claim", "pending retrying", "processing", "A worker takes the event and counts the attempt."),
    _t("complete", "processing", "processed", "The handler's transaction and the outcome commit together."),
    _t("skip", "processing", "skipped", "The handler decided there is nothing to do."),
    _t("skip_unhandled", "pending", "skipped", "No live worker has handled the type for the configured time."),
    _t("reschedule", "processing", "retrying", "A transient failure: due again after a backoff."),
    _t("wait", "processing", "retrying", "The handler waits for something; no attempt is consumed."),
    _t("fail", "processing", "failed", "A permanent failure, or the budget of this run is exhausted."),
    _t("review", "processing", "needs_review", "The handler, or what it did, needs a person."),
    _t("release", "processing", "pending", "A worker gives back what it had not started."),
    _t("rescue", "processing", "retrying", "The lease expired: the worker is dead or frozen."),
    _t("bury", "processing", "failed", "The lease expired and the budget of this run is exhausted."),
    _t("retry", "failed retrying needs_review", "pending", "An operator sends the event round again now."),
    _t(
        "replay",
        "processed skipped failed discarded needs_review",
        "pending",
        "An operator processes the event again, as a new run.",
    ),
    _t("discard", "pending retrying failed needs_review", "discarded", "An operator closes the event."),
)

BY_NAME: dict[str, Transition] = {t.name: t for t in TRANSITIONS}


class DeliveryOutcome(StrEnum):
    """What one arrival turned out to be."""

    ACCEPTED = "accepted"
    """A new event."""

    DUPLICATE = "duplicate"
    """The event was known already; only this row is added."""

    CONFLICT = "conflict"
    """A known key or signed token with other content; kept with its bytes, the event untouched."""

    SAME_BODY = "same_body"
    """Known content under a new id or type that the signature does not cover; its bytes are kept once."""

    INVALID = "invalid"
    """Authentic but unreadable; kept with its bytes as a dead-lettered event."""

    RECONCILED = "reconciled"
    """A new event that no delivery brought: taken in by reconciliation."""


class KeyOrigin(StrEnum):
    """What the event key was made from, and so how far it can be trusted."""

    SIGNED_ID = "signed_id"
    """The provider's id, covered by the signature."""

    UNSIGNED_ID = "unsigned_id"
    """The provider's id, in a header that anyone who captured the body can change."""

    COMPOSITE = "composite"
    """Several fields together."""

    FUNCTION = "function"
    """What the source's own function says."""

    DIGEST = "digest"
    """No id: a digest of type and named fields, or of type and content."""

    ARRIVAL = "arrival"
    """Nothing: each arrival is an event, because the provider only says that something changed."""

    ADMITTED = "admitted"
    """An operator made an event of an odd delivery; the key is the one it came with, and a number."""


class AttemptOutcome(StrEnum):
    """How one execution of a handler ended."""

    PROCESSED = "processed"
    SKIPPED = "skipped"
    RETRYING = "retrying"
    WAITING = "waiting"
    FAILED = "failed"
    NEEDS_REVIEW = "needs_review"
    CRASHED = "crashed"


# ── effects ──────────────────────────────────────────────────────────────────


class EffectKind(StrEnum):
    """How a business consequence is brought about."""

    ONCE = "once"
    """By the handler's own writes: the row is in their transaction, and done with it."""

    CALL = "call"
    """By a call in the middle of the handler, recorded before and after it."""

    LATER = "later"
    """By a call after the handler's commit: the row is the outbox entry."""


class EffectState(StrEnum):
    """Where one business consequence stands."""

    PLANNED = "planned"
    """To be done: an outbox row, or sent round again after it was found not to have happened."""

    STARTED = "started"
    """Committed before the call. Whether the call was sent is not known from this alone."""

    DONE = "done"
    """It happened. It is not done again under this key."""

    FAILED = "failed"
    """It certainly did not happen, and nobody is trying: not sent, or refused by the remote."""

    UNKNOWN = "unknown"
    """Nobody here knows whether it happened: its policy, its check or a person decides."""

    CANCELLED = "cancelled"
    """An operator decided that it is not to be done."""


class EffectTransition(NamedTuple):
    name: str
    sources: frozenset[EffectState]
    """None of them: the row is made."""
    target: EffectState
    sentence: str


def _e(name: str, sources: str, target: str, sentence: str) -> EffectTransition:
    return EffectTransition(name, frozenset(EffectState(s) for s in sources.split()), EffectState(target), sentence)


EFFECT_TRANSITIONS: tuple[EffectTransition, ...] = (
    _e("plan", "", "planned", "The outbox row is in the handler's transaction."),
    _e("adopt", "planned failed", "planned", "A handler leaves its call, which did not happen, to the outbox."),
    _e("once", "", "done", "The handler's own writes are the effect."),
    _e("begin", "", "started", "Committed before the first call of a handler's effect."),
    _e("start", "planned failed unknown", "started", "Committed before each call, under a new fence."),
    _e(
        "finish",
        "started unknown planned failed cancelled",
        "done",
        "The call came back, be it late; or a check or a person found it.",
    ),
    _e("postpone", "started unknown", "planned", "Not sent or refused: the outbox tries again after a backoff."),
    _e("refuse", "started unknown", "failed", "Not sent or refused, and nobody tries again by themselves."),
    _e("doubt", "started", "unknown", "Time-out, reset, 5xx, or the lease ran out."),
    _e(
        "reopen",
        "unknown failed done",
        "planned",
        "A check or a person found that it did not happen; if done, then only because somebody said so.",
    ),
    _e(
        "repeat",
        "done cancelled",
        "planned",
        "An operator decided that it is to be done once more, by the run that a replay begins; a `once` makes way.",
    ),
    _e("try", "planned failed", "planned", "An operator has the outbox do it now, with a fresh budget."),
    _e("cancel", "planned failed", "cancelled", "An operator decided that it is not to be done."),
)


class CallOutcome(StrEnum):
    """How one physical call ended; none while it runs, or when nobody lived to tell."""

    DONE = "done"
    """The remote did it."""

    REFUSED = "refused"
    """Not sent, or refused: it certainly did not happen."""

    UNKNOWN = "unknown"
    """Anything else."""


class Repeat(StrEnum):
    """What may be done about an unknown outcome; part of each effect's declaration."""

    SAFE = "safe"
    """Repeat: doing it twice is doing it once."""

    KEYED = "keyed"
    """Repeat within the window in which the remote remembers the idempotency key."""

    ACCEPT = "accept"
    """Repeat, and say so loudly: duplicates are acceptable."""

    NEVER = "never"
    """A person decides."""


class CircuitState(StrEnum):
    """Whether a downstream is being called."""

    CLOSED = "closed"
    """It works."""

    OPEN = "open"
    """It failed too often in a row, or an operator tripped it: nobody calls."""

    HALF_OPEN = "half_open"
    """One trial call is on its way; it decides."""
