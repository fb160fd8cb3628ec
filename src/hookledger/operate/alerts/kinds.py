"""The kinds of alerts: one table, from which the messages and the page in docs/reference are made."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...store.ops.alert_looks import AlertKind

Severity = Literal["critical", "error", "warning", "info"]
"""As PagerDuty names them."""


class Described(Struct, frozen=True):
    """What one kind of alert means."""

    severity: Severity
    condition: str
    """When it is sent."""
    one: str
    """What a message counts: one of it,"""
    many: str
    """or several."""
    topic: str
    """What occurrences of one message have in common."""
    do: str
    """What to do about it."""
    command: str
    """The command to begin with, unless the message names an event."""


OTHER = Described("error", "", "occurrence", "occurrences", "topic", "See `hookledger doctor`.", "hookledger doctor")
"""A kind of a newer release, in a table that it shares with this one."""
KINDS: dict[str, Described] = {
    AlertKind.NEW_CAUSE: Described(
        "warning",
        "An event fails for a cause that is not among the last 4,096 that the target was told of. Not sent if an "
        "event of this cause became a dead letter or entered review at the same time.",
        "new cause of failure",
        "new causes of failure",
        "source and cause",
        "Read the traceback. The event is retried if its cause may pass.",
        "hookledger failures",
    ),
    AlertKind.DEAD_LETTER: Described(
        "error",
        "An event became `failed`: its retries are exhausted, its error is permanent, or its body is unreadable.",
        "dead letter",
        "dead letters",
        "source and cause",
        "Fix the cause, then `hookledger retry` or `hookledger bulk retry`.",
        "hookledger failures",
    ),
    AlertKind.NEEDS_REVIEW: Described(
        "error",
        "An event entered `needs_review`: an operator must decide.",
        "event in review",
        "events in review",
        "source and cause",
        "`hookledger show` says how to decide.",
        "hookledger events --state needs_review",
    ),
    AlertKind.UNKNOWN_EFFECT: Described(
        "error",
        "The outcome of an effect's call is unknown, and neither its policy nor a retry of its event settles it.",
        "effect with an unknown outcome",
        "effects with an unknown outcome",
        "source and name of the effect",
        "Ask the remote whether it happened, then `hookledger resolve`.",
        "hookledger effects --state unknown",
    ),
    AlertKind.FAILED_EFFECT: Described(
        "error",
        "An outbox effect failed for good.",
        "failed outbox effect",
        "failed outbox effects",
        "source and name of the effect",
        "Fix the cause, then `hookledger effects try`.",
        "hookledger effects --state failed",
    ),
    AlertKind.CONTRADICTION: Described(
        "error",
        "A call that ended late contradicts what an operator decided about the effect.",
        "contradicted decision",
        "contradicted decisions",
        "source and name of the effect",
        "Compare the call with the decision, and correct what follows from it.",
        "hookledger events --attention",
    ),
    AlertKind.CONFLICT: Described(
        "warning",
        "A delivery was quarantined: a known key with other content, or known content under a new unsigned id.",
        "quarantined delivery",
        "quarantined deliveries",
        "source",
        "Compare the two, then `hookledger quarantine accept` if it is an event.",
        "hookledger quarantine",
    ),
    AlertKind.REDELIVERY: Described(
        "error",
        "The provider redelivered a failing event more often than the source's `redelivery_alert`, or redelivered a "
        'dead letter of a source with `on_failed = "alert"`.',
        "failing event redelivered too often",
        "failing events redelivered too often",
        "source",
        "Fix the handler before the provider gives up or disables the endpoint.",
        "hookledger events --attention",
    ),
    AlertKind.CIRCUIT_OPEN: Described(
        "error",
        "Failures opened the circuit of a downstream. Not sent if an operator tripped it.",
        "circuit opened",
        "circuits opened",
        "downstream",
        "Check the downstream. Calls resume when a trial call succeeds.",
        "hookledger circuits",
    ),
    AlertKind.NO_WORKER: Described(
        "critical",
        "Events are due, and no worker was alive, for longer than `no_worker_after` and a worker's lease. Sent by "
        "`hookledger api`, or by `hookledger receive` with its operator listener.",
        "no worker is alive",
        "no worker is alive",
        "the inbox",
        "Start `hookledger work`, or read its log.",
        "hookledger doctor",
    ),
    AlertKind.SIGNATURE_FAILURES: Described(
        "warning",
        "A source rejected at least `signature_failures` requests within a window because their authenticity could "
        "not be verified.",
        "request with an invalid signature",
        "requests with an invalid signature",
        "source",
        "Compare the secret with the provider's; then `hookledger rejections recheck`.",
        "hookledger rejections",
    ),
    AlertKind.CONSISTENCY: Described(
        "critical",
        "The consistency check found that data does not add up.",
        "failed consistency check",
        "failed consistency checks",
        "what the check reports",
        "`hookledger doctor` names the rows.",
        "hookledger doctor",
    ),
    AlertKind.SECRET_EXPIRY: Described(
        "warning",
        "The last valid secret of a source expires within 14 days; and again when it has expired.",
        "secret about to expire",
        "secrets about to expire",
        "source",
        "Add its successor to the source's `secrets`.",
        "hookledger doctor",
    ),
}
