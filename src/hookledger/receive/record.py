"""Group commit: deliveries that arrive together share one transaction and one fsync.

A 2xx is possible only after the commit that holds the event.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from ..batching import Batcher
from ..errors import BadData, HookledgerError, Unavailable
from ..model import Arrival, Recorded

log = logging.getLogger(__name__)


class Records(Protocol):
    """The one thing that recording needs of a store."""

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]: ...


class Recorder:
    """`batch`: how many deliveries one commit may hold; `queue`: how many may wait; `parallel`: commits at once."""

    def __init__(self, store: Records, *, batch: int = 128, queue: int = 2048, parallel: int = 1) -> None:
        self._store = store
        self._batcher = Batcher(self._commit, most=batch, queue=queue, parallel=parallel)

    async def record(self, arrival: Arrival) -> list[Recorded]:
        """Returns when the arrival is on disk. Raises Unavailable when it is not, or when that is unknown."""
        return await self._batcher.submit(arrival)

    async def drain(self) -> None:
        await self._batcher.drain()

    async def _commit(self, arrivals: Sequence[Arrival]) -> Sequence[list[Recorded] | Exception]:
        try:
            return await self._store.record(arrivals)
        except BadData as error:
            if len(arrivals) == 1:
                log.exception("the database refuses request %s of %s", arrivals[0].id, arrivals[0].source)
                return [Unavailable(str(error))]
        except HookledgerError as error:
            raise Unavailable(str(error)) from error
        # One row that the database refuses must not take its neighbours with it.
        return [(await self._commit([arrival]))[0] for arrival in arrivals]
