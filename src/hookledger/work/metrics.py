"""What a worker counted: as metrics, and for charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.declare import Effects
from ..observe.metrics.counts import WorkCounts
from ..observe.metrics.rollup import Totals, bucket_totals

if TYPE_CHECKING:
    from ..observe.metrics.samples import Samples


class WorkMetrics:
    def __init__(self, counts: WorkCounts, effects: Effects) -> None:
        self._counts = counts
        self._effects = effects

    def collect(self, samples: Samples) -> None:
        """Add the worker's metrics. Called in another thread than the worker's."""
        counts = self._counts
        for (source, handler, outcome), count in list(counts.attempts.items()):
            samples.add("attempts_total", count, source, handler, outcome)
        for handler, found in list(counts.attempt_seconds.items()):
            samples.add("attempt_seconds", found, handler)
        for source, found in list(counts.settle_delay.items()):
            samples.add("settle_delay_seconds", found, source)
        for source, count in list(counts.stale.items()):
            samples.add("stale_total", count, source)
        for cause, count in counts.rollbacks.items():
            samples.add("rollbacks_total", count, cause)
        for effect in self._effects.all():
            samples.add("effect_conflicts_total", effect.counts.conflicts, effect.name)
            samples.add("effect_seconds", effect.counts.seconds, effect.name)
            for ending, count in effect.counts.calls.items():
                samples.add("effect_calls_total", count, effect.name, ending)
        samples.add("claims_lost_total", counts.claims_lost)
        samples.add("leases_reclaimed_total", counts.leases_reclaimed)
        samples.add("late_outcomes_refused_total", counts.late_outcomes)
        samples.add("handlers_running", counts.running())
        samples.add("handler_slots", counts.slots)
        if counts.heartbeat_at:
            samples.add("heartbeat_timestamp_seconds", counts.heartbeat_at)

    def totals(self) -> Totals:
        """Return what charts show, since the start."""
        found: Totals = {}
        for (source, _, outcome), count in list(self._counts.attempts.items()):
            key = source, f"attempt.{outcome}"
            found[key] = found.get(key, 0) + count
        for source, delays in list(self._counts.settle_delay.items()):
            found |= {(source, what): count for what, count in bucket_totals("delay", delays)}
        return found | {(source, "stale"): count for source, count in list(self._counts.stale.items())}
