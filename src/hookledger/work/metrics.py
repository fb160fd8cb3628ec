"""What a worker counted: as metrics, and for charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..effects.declare import Effects
from ..observe.metrics.counts import Histogram, WorkCounts
from ..observe.metrics.rollup import Totals, bucket_totals

if TYPE_CHECKING:
    from ..observe.metrics.samples import Samples


class WorkMetrics:
    """`counts`: of each part of this process that runs handlers; their sums are shown."""

    def __init__(self, counts: Sequence[WorkCounts], effects: Effects) -> None:
        self._counts = counts
        self._effects = effects

    def collect(self, samples: Samples) -> None:
        """Add the metrics. Called in another thread than the handlers'."""
        counts = self._counts
        for (source, handler, outcome), count in _sums(one.attempts for one in counts).items():
            samples.add("attempts_total", count, source, handler, outcome)
        for handler, found in _joined(one.attempt_seconds for one in counts).items():
            samples.add("attempt_seconds", found, handler)
        for source, found in _joined(one.settle_delay for one in counts).items():
            samples.add("settle_delay_seconds", found, source)
        for source, count in _sums(one.stale for one in counts).items():
            samples.add("stale_total", count, source)
        for cause, count in _sums(one.rollbacks for one in counts).items():
            samples.add("rollbacks_total", count, cause)
        for effect in self._effects.all():
            samples.add("effect_conflicts_total", effect.counts.conflicts, effect.name)
            samples.add("effect_seconds", effect.counts.seconds, effect.name)
            for ending, count in effect.counts.calls.items():
                samples.add("effect_calls_total", count, effect.name, ending)
        samples.add("claims_lost_total", sum(one.claims_lost for one in counts))
        samples.add("leases_reclaimed_total", sum(one.leases_reclaimed for one in counts))
        samples.add("late_outcomes_refused_total", sum(one.late_outcomes for one in counts))
        samples.add("handlers_running", sum(one.running() for one in counts))
        samples.add("handler_slots", sum(one.slots for one in counts))
        if beats := [one.heartbeat_at for one in counts if one.heartbeat_at]:
            samples.add("heartbeat_timestamp_seconds", min(beats))

    def totals(self) -> Totals:
        """Return what charts show, since the start."""
        found: Totals = {}
        for (source, _, outcome), count in _sums(one.attempts for one in self._counts).items():
            key = source, f"attempt.{outcome}"
            found[key] = found.get(key, 0) + count
        for source, delays in _joined(one.settle_delay for one in self._counts).items():
            found |= {(source, what): count for what, count in bucket_totals("delay", delays)}
        stale = _sums(one.stale for one in self._counts)
        return found | {(source, "stale"): count for source, count in stale.items()}


def _sums(found: Iterable[dict[Any, int]]) -> dict[Any, int]:
    """Return the sums, those that are 0 included. What another thread counts is copied in one step."""
    sums: dict[Any, int] = {}
    for one in found:
        for key, count in list(one.items()):
            sums[key] = sums.get(key, 0) + count
    return sums


def _joined(found: Iterable[dict[str, Histogram]]) -> dict[str, Histogram]:
    joined: dict[str, Histogram] = {}
    for one in found:
        for key, more in list(one.items()):
            sums = joined.setdefault(key, Histogram(more.bounds))
            sums.counts = [count + extra for count, extra in zip(sums.counts, more.counts, strict=True)]
            sums.sum += more.sum
    return joined
