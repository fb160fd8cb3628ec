"""Counts as plain integers: on the hot path one addition to an attribute or a list each, without a lock.

Only one thread adds to each; the monitor's thread reads them, and may see one of two that belong together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from ...states import AttemptOutcome, CallOutcome, DeliveryOutcome
from .table import BY_NAME


class Histogram:
    """Values by buckets. `counts` has one entry more than there are bounds: for values beyond the last."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: list[float] = list(bounds)
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def histogram(name: str) -> Histogram:
    """Return an empty histogram with the buckets of this metric."""
    return Histogram(BY_NAME[name].buckets)


ANSWERS = ("run", "stored", "late", "refused", "rule")
"""What a delivery whose handler answers got."""
LOOKUPS = ("hit", "miss")
"""Whether a duplicate got the handler's answer."""


class SourceCounts:
    """What the intake counts for one source. Every request ends in one of `ack`, `unavailable`, `unrecorded` and the
    rejections."""

    __slots__ = ("ack", "answers", "lookups", "outcomes", "unavailable", "unrecorded")

    def __init__(self) -> None:
        self.outcomes: dict[DeliveryOutcome, int] = dict.fromkeys(DeliveryOutcome, 0)
        self.ack: Histogram = histogram("ack_seconds")
        self.unavailable: int = 0
        self.answers: dict[str, int] = dict.fromkeys(ANSWERS, 0)
        """Of deliveries whose handlers answer."""
        self.lookups: dict[str, int] = dict.fromkeys(LOOKUPS, 0)
        """Of duplicates among them."""
        self.unrecorded: int = 0
        """Handshakes, and deliveries with nothing to record."""


UNAVAILABLE = ("database", "queue_full", "no_room", "no_body", "clock_skew", "keys", "answers", "internal")
"""Why a request gets 503."""


class IntakeCounts:
    """What the intake counts for all sources."""

    __slots__ = ("commit_deliveries", "commit_seconds", "rejections", "strangers", "unavailable")

    def __init__(self) -> None:
        self.strangers: SourceCounts = SourceCounts()
        """Of requests that belong to no source."""
        self.unavailable: dict[str, int] = dict.fromkeys(UNAVAILABLE, 0)
        self.commit_seconds: Histogram = histogram("commit_seconds")
        self.commit_deliveries: Histogram = histogram("commit_deliveries")
        self.rejections: Counter[tuple[str, str]] = Counter()
        """By source and reason; the reasons are a closed set."""


class EffectCounts:
    """What the calls of one effect come to."""

    __slots__ = ("calls", "conflicts", "seconds")

    def __init__(self) -> None:
        self.calls: dict[CallOutcome, int] = dict.fromkeys(CallOutcome, 0)
        self.conflicts: int = 0
        self.seconds: Histogram = histogram("effect_seconds")


ROLLBACKS = ("error", "decision", "timeout", "contention", "claim_lost", "stopped", "committed", "database")
"""Why the transaction of a handler was rolled back."""
ENDED = tuple(outcome for outcome in AttemptOutcome if outcome is not AttemptOutcome.CRASHED)
"""Outcomes that a worker records for its attempts."""
FINAL = frozenset(
    {AttemptOutcome.PROCESSED, AttemptOutcome.SKIPPED, AttemptOutcome.FAILED, AttemptOutcome.NEEDS_REVIEW}
)
"""Outcomes that end the run of an event."""


class WorkCounts:
    """What a worker counts. Sources, handlers and effects are those that the application declares."""

    def __init__(self) -> None:
        self.attempts: Counter[tuple[str, str, AttemptOutcome]] = Counter()
        """By source, handler and outcome."""
        self.attempt_seconds: dict[str, Histogram] = {}
        self.settle_delay: dict[str, Histogram] = {}
        self.stale: Counter[str] = Counter()
        self.rollbacks: dict[str, int] = dict.fromkeys(ROLLBACKS, 0)
        self.claims_lost: int = 0
        self.leases_reclaimed: int = 0
        self.late_outcomes: int = 0
        self.slots: int = 0
        self.running: Callable[[], int] = lambda: 0
        self.registered: bool = False
        """Whether other workers know of this one."""
        self.heartbeat_at: float = 0.0
        """When leases were last renewed; 0: not yet."""
        self.heartbeat_alive: Callable[[], bool] = lambda: True
        """Whether the thread that renews them runs."""

    def expect(self, source: str, handler: str) -> None:
        """Count from 0 on: what appears with its first count has no increase."""
        for outcome in ENDED:
            self.attempts.setdefault((source, handler, outcome), 0)
        self.stale.setdefault(source, 0)

    def ended(
        self, source: str, handler: str, outcome: AttemptOutcome, seconds: float | None, delay: float | None
    ) -> None:
        """Count an attempt whose outcome is recorded. `seconds`: how long it took, None where it did not run.
        `delay`: since its event arrived, None for a later run."""
        self.attempts[source, handler, outcome] += 1
        if seconds is not None:
            self._histogram(self.attempt_seconds, handler, "attempt_seconds").observe(seconds)
        if delay is not None and outcome in FINAL:
            self._histogram(self.settle_delay, source, "settle_delay_seconds").observe(max(0.0, delay))

    @staticmethod
    def _histogram(among: dict[str, Histogram], label: str, name: str) -> Histogram:
        found = among.get(label)
        if found is None:
            found = among[label] = histogram(name)
        return found
