"""Rollups: the counts of this process, written to the database every ten seconds for charts.

A batch is the difference to the one before. It has a number, which the store keeps with it: a batch whose commit is
unknown is written again under its number, and counts once. While one cannot be written, the counts of the time after
it wait for the next. A killed process loses at most the last ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ...errors import HookledgerError
from ..logs import RateLimitedLogger
from .counts import Histogram

log: logging.Logger = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two batches."""
PATIENCE = 5.0
"""Seconds that the last batch may take when the process stops."""
BEYOND = "inf"
Totals = dict[tuple[str, str], int]
"""How often something happened since the start, by source and what."""


def bucket_totals(name: str, found: Histogram) -> Iterator[tuple[str, int]]:
    """Yield each bucket as charts call it, such as `ack.0.05`: values up to that, and above the bucket before."""
    for bound, count in zip([*(f"{one:g}" for one in found.bounds), BEYOND], found.counts, strict=True):
        yield f"{name}.{bound}", count


class RateStore(Protocol):
    """The store, as far as a writer uses it."""

    async def add(self, process: str, number: int, counts: Mapping[tuple[str, str], int]) -> bool: ...


class RateWriter:
    """Writes what a process counts from now on. `process` is unique among all that ever write; `totals` returns the
    counts since the process started."""

    def __init__(self, store: RateStore, process: str, totals: Callable[[], Totals], *, every: float = EVERY) -> None:
        self._store = store
        self._process = process
        self._totals = totals
        self._every = every
        self._written = totals()
        self._batch: Totals | None = None
        self._number = 0
        self._seldom = RateLimitedLogger(log, every=60.0)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            await self.write()

    async def write(self) -> None:
        """Write what was counted since the last batch; a batch that could not be written is first."""
        try:
            if self._batch is not None:
                await self._send(self._batch)
            if batch := self._next():
                self._batch = batch
                await self._send(batch)
        except HookledgerError as error:
            self._seldom.warning("the counts for charts are not written yet: %s", error)
        except Exception:
            log.exception("the counts for charts are not written: internal error")

    async def close(self) -> None:
        """Write the last batch, unless that takes long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self.write()

    def _next(self) -> Totals:
        totals = self._totals()
        batch = {key: count - self._written.get(key, 0) for key, count in totals.items()}
        batch = {key: count for key, count in batch.items() if count > 0}
        if batch:
            self._written = totals
            self._number += 1
        return batch

    async def _send(self, batch: Totals) -> None:
        await self._store.add(self._process, self._number, batch)
        self._batch = None


class Written:
    """Write every ten seconds, and what is left at the end of the block.

    No generator: a loop that is shut down ends all its asynchronous generators concurrently, and what is open on it
    lives in one (`store/opening.py`), whose end waits for this.
    """

    def __init__(self, writer: RateWriter) -> None:
        self._writer = writer
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._writer.run())

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._writer.close()
