"""Group commit: deliveries that arrive together share one transaction and one fsync.

A 2xx is possible only after the commit that holds the event.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Protocol

from ..batching import Batcher, Done, isolating
from ..errors import Unavailable
from ..model import Arrival, Recorded

log = logging.getLogger(__name__)


class Records(Protocol):
    """What recording needs of a store."""

    async def record_new(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | None]: ...
    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]: ...


STEP = 16
"""Groups of fewer cost too much each, and SQLite writes so many rows with one statement."""
PATIENCE = 0.005
"""Seconds; a commit that takes longer waits rather than works, be it for a disk or for a network."""

HEAVIEST = 4 * 1024 * 1024
"""Bytes of bodies after which a commit takes no more: some providers send 50 MiB, and a message to PostgreSQL holds
1 GiB."""


class Recorder:
    """`batch`: how many deliveries one commit may hold; `queue`: how many may wait; `parallel`: commits at once.

    `queues`: whether a commit can wait at the store for its turn, without being in the way of the one before it.
    """

    def __init__(
        self, store: Records, *, batch: int = 64, queue: int = 2048, parallel: int = 2, queues: bool = False
    ) -> None:
        self._store = store
        self._look = isolating(store.record)
        patience = 0.0 if queues else PATIENCE
        self._batcher = Batcher(
            self._commit,
            most=batch,
            queue=queue,
            parallel=parallel,
            patience=patience,
            step=STEP,
            weigh=lambda arrival: len(arrival.body),
            heaviest=HEAVIEST,
        )

    def submit(self, arrival: Arrival, done: Done[list[Recorded]]) -> None:
        """`done` is called when the arrival is on disk; with Unavailable when it is not, or when that is unknown.

        Raises Unavailable at once when too many wait already.
        """
        self._batcher.put(arrival, done)

    async def record(self, arrival: Arrival) -> list[Recorded]:
        """The same for those who wait."""
        return await self._batcher.submit(arrival)

    async def drain(self) -> None:
        await self._batcher.drain()

    async def _commit(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | Exception]:
        """The plainly new ones first; whatever happens to the others, those are on disk and will be acked."""
        try:
            first = await self._store.record_new(arrivals)
        except Unavailable:
            raise
        except Exception:  # one that is refused: found out one by one
            first = [None] * len(arrivals)
        rest = [arrival for arrival, recorded in zip(arrivals, first, strict=True) if recorded is None]
        if not rest:
            return [recorded for recorded in first if recorded is not None]
        looked: Iterator[list[Recorded] | Exception]
        try:
            looked = iter(await self._look(rest))
        except Exception as error:
            looked = repeat(error)
        results = [next(looked) if recorded is None else recorded for recorded in first]
        return [
            _not_recorded(arrival, result) if isinstance(result, Exception) else result
            for arrival, result in zip(arrivals, results, strict=True)
        ]


def _not_recorded(arrival: Arrival, error: Exception) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    # Our own mistake, since every projection was made to fit: the provider's retries keep the event alive.
    log.error("the store refuses request %s of %s", arrival.id, arrival.source, exc_info=error)
    return Unavailable("the store refuses it")
