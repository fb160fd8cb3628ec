"""Record deliveries in batches that share one transaction and one fsync.

The sender gets a 2xx only after the commit that holds its event.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

from ..batching import Batcher, Done, retry_individually, short_way_first
from ..errors import Unavailable
from ..model import Arrival, Recorded
from ..observe.metrics.counts import IntakeCounts

log: logging.Logger = logging.getLogger(__name__)


class Records(Protocol):
    """The store, as far as the recorder uses it."""

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]: ...
    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]: ...


STEP = 16
"""Deliveries; smaller batches cost too much per delivery, and SQLite writes this many rows with one statement."""
SOLO_TIME = 0.005
"""Seconds; a longer commit waits for a disk or a network, not for the CPU."""

MAX_WEIGHT = 4 * 1024 * 1024
"""Body bytes that fill a batch: some providers send 50 MiB, and a message to PostgreSQL holds 1 GiB."""


class Recorder:
    """Record deliveries in batches; `batch`, `queue` and `parallel` are those of `[intake]`.

    `queues`: whether the store queues a second commit without slowing the first.
    """

    def __init__(
        self,
        store: Records,
        *,
        batch: int = 64,
        queue: int = 2048,
        parallel: int = 2,
        queues: bool = False,
        counts: IntakeCounts | None = None,
    ) -> None:
        self.counts: IntakeCounts = counts or IntakeCounts()
        self.committed: float = 0.0
        """When the last commit ended, by `perf_counter`."""
        # The clearly new ones are committed and acked even if the others fail.
        self._commit = short_way_first(store.record_new, retry_individually(store.record))
        self._batcher = Batcher(
            self._timed,
            max_items=batch,
            max_queued=queue,
            max_in_flight=parallel,
            solo_time=0.0 if queues else SOLO_TIME,
            step=STEP,
            weigh=lambda arrival: len(arrival.body),
            max_weight=MAX_WEIGHT,
        )

    def submit(self, arrival: Arrival, done: Done[list[Recorded]]) -> None:
        """Queue an arrival; `done` gets the outcomes once they are committed, or Unavailable if they are not or that
        is unknown.

        Raises Unavailable when the queue is full.
        """
        self._batcher.put(arrival, done)

    async def record(self, arrival: Arrival) -> list[Recorded]:
        """Record one arrival and return its outcomes."""
        return await self._batcher.submit(arrival)

    async def drain(self) -> None:
        await self._batcher.drain()

    @property
    def queued(self) -> int:
        """Deliveries that wait for a commit."""
        return self._batcher.queued

    async def _timed(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | Exception]:
        began = perf_counter()
        try:
            results = await self._commit(arrivals)
        finally:
            self.committed = ended = perf_counter()
            self.counts.commit_seconds.observe(ended - began)
            self.counts.commit_deliveries.observe(len(arrivals))
        return [
            _not_recorded(arrival, result) if isinstance(result, Exception) else result
            for arrival, result in zip(arrivals, results, strict=True)
        ]


def _not_recorded(arrival: Arrival, error: Exception) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    # An internal error, since every column was made to fit: answer 503, so that the provider redelivers.
    log.error("request %s of %s not recorded: internal error", arrival.id, arrival.source, exc_info=error)
    return Unavailable("the store could not record it: internal error").because("internal")
