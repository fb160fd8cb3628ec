"""What the intake counted: as metrics, and for charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..observe.metrics.counts import IntakeCounts, SourceCounts
from ..observe.metrics.rollup import Totals, bucket_totals
from .endpoint import Endpoint

if TYPE_CHECKING:
    from ..observe.metrics.samples import Samples

STRANGERS = ""
"""The source of requests that belong to none."""


class IntakeMetrics:
    """`endpoints`: of every source. `queued`: returns how many deliveries wait for a commit. `guarded`: they are of
    guarded routes, all of which answer."""

    def __init__(
        self, endpoints: Iterable[Endpoint], counts: IntakeCounts, queued: Callable[[], int], *, guarded: bool = False
    ) -> None:
        served = list(endpoints)
        self._sources: dict[str, SourceCounts] = {endpoint.name: endpoint.counts for endpoint in served}
        self._answering = {endpoint.name for endpoint in served if guarded or endpoint.answers is not None}
        self._counts = counts
        self._queued = queued

    def collect(self, samples: Samples, guards: Sequence[IntakeMetrics] = ()) -> None:
        """Add the intake's metrics, with those of guarded routes in the same process. Called in another thread than
        the intake's."""
        unavailable = Counter(self._counts.unavailable)
        rejections = dict(self._counts.rejections)
        for one in guards:
            unavailable.update(one._counts.unavailable)
            rejections |= one._counts.rejections
        rejected: Counter[str] = Counter()
        for (source, reason), count in rejections.items():
            rejected[source] += count
            samples.add("rejections_total", count, source, reason)
        sources, answering = {**self._sources, STRANGERS: self._counts.strangers}, set(self._answering)
        for one in guards:
            sources |= one._sources
            answering |= one._answering
        for name, counts in sources.items():
            answered = sum(counts.ack.counts) + counts.unavailable + counts.unrecorded
            samples.add("requests_total", answered + rejected[name], name)
            if name != STRANGERS:
                samples.add("ack_seconds", counts.ack, name)
                for outcome, count in counts.outcomes.items():
                    samples.add("deliveries_total", count, name, outcome)
            if name in answering:
                for result, count in counts.answers.items():
                    samples.add("answers_total", count, name, result)
                for result, count in counts.lookups.items():
                    samples.add("answer_lookups_total", count, name, result)
        for cause, count in unavailable.items():
            samples.add("unavailable_total", count, cause)
        samples.add("commit_seconds", self._counts.commit_seconds)
        samples.add("commit_deliveries", self._counts.commit_deliveries)
        samples.add("intake_queue", self._queued())

    def totals(self) -> Totals:
        """Return what charts show, since the start."""
        found: Totals = {}
        for (source, _), count in list(self._counts.rejections.items()):
            found[source, "rejected"] = found.get((source, "rejected"), 0) + count
        for name, counts in {**self._sources, STRANGERS: self._counts.strangers}.items():
            found |= {(name, f"delivery.{outcome}"): count for outcome, count in counts.outcomes.items()}
            found |= {(name, what): count for what, count in bucket_totals("ack", counts.ack)}
            found[name, "unavailable"] = counts.unavailable
        return found
