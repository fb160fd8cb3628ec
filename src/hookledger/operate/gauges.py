"""Metrics that the database knows: read at most every 15 seconds, however many ask, and never a count of everything.

For one more metric of the database: a line in `observe/metrics/table.py`, a reader here, and its name in READERS.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..errors import HookledgerError
from ..model import base_source
from ..observe.logs import RateLimitedLogger
from ..receive.secrets import SecretSettings
from ..states import CircuitState, EffectState, State
from .alerts.messages import alert_totals
from .circuits import circuits
from .context import Context
from .workers import workers

if TYPE_CHECKING:
    from ..observe.metrics.samples import Samples

log: logging.Logger = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds for which what was read is shown again."""
AGAIN = 3.0
"""The same after a failure."""
PATIENCE = 8.0
"""Seconds that reading all of it may take."""
MOST = 100_000
"""Events that are counted: of a state, and of each source in the queue."""
MOST_CIRCUITS = 500
MOST_ALERTS = 1_000
BACKLOG = (State.FAILED, State.NEEDS_REVIEW)
QUEUE = ("pending", "retrying", "processing")
OPEN_EFFECTS = (EffectState.PLANNED, EffectState.FAILED, EffectState.UNKNOWN)

Reader = Callable[[Context, "Samples"], Awaitable[None]]


async def queue(context: Context, samples: Samples) -> None:
    events: Counter[tuple[str, str]] = Counter()
    lag: dict[str, float] = dict.fromkeys(context.sources.names, 0.0)
    for one in await context.store.attention.queue(MOST):
        source = base_source(one.source)
        for state in QUEUE:
            events[source, state] += getattr(one, state)
        lag[source] = max(lag.get(source, 0.0), one.overdue or 0.0)
    for source, seconds in lag.items():
        samples.add("queue_lag_seconds", seconds, source)
        for state in QUEUE:
            samples.add("queue_events", events[source, state], source, state)


async def backlog(context: Context, samples: Samples) -> None:
    for state in BACKLOG:
        events = Counter(dict.fromkeys(context.sources.names, 0))
        for source, count in (await context.store.attention.by_source(state, MOST)).items():
            events[base_source(source)] += count
        for source, count in events.items():
            samples.add("backlog_events", count, source, state)


async def outbox(context: Context, samples: Samples) -> None:
    for state in OPEN_EFFECTS:
        samples.add("outbox_effects", await context.store.attention.tally(state), state)
    late = await context.store.attention.overdue(0.0)
    now = await context.store.rates.now()
    samples.add("outbox_lag_seconds", 0.0 if late.since is None else max(0.0, (now - late.since).total_seconds()))


async def downstreams(context: Context, samples: Samples) -> None:
    for circuit in (await circuits(context))[:MOST_CIRCUITS]:
        samples.add("circuit_open", int(circuit.state is not CircuitState.CLOSED), circuit.downstream)


async def processes(context: Context, samples: Samples) -> None:
    samples.add("workers_alive", sum(worker.works(context.lease) for worker in await workers(context)))
    samples.add("clock_skew_seconds", (await context.store.health()).clock_skew)


async def secrets(context: Context, samples: Samples) -> None:
    for name in context.sources.names:
        given = context.sources.endpoint(name).settings.secrets
        ends = [one.expires_at for one in given if isinstance(one, SecretSettings)]
        known = [end for end in ends if end is not None]
        if known and len(known) == len(given):
            samples.add("secret_expiry_timestamp_seconds", max(known), name)


async def alerts(context: Context, samples: Samples) -> None:
    events = Counter(dict.fromkeys(context.sources.names, 0))
    for one in await context.store.attention.alerts(MOST_ALERTS):
        events[base_source(one.source)] += 1
    for source, count in events.items():
        samples.add("event_alerts", count, source)
    for state, count in (await alert_totals(context)).items():
        samples.add("alert_messages", count, state)


async def consistency(context: Context, samples: Samples) -> None:
    standing = await context.store.checks.standing()
    samples.add("consistency_violations", standing.total)
    if standing.checked_at is not None:
        samples.add("consistency_checked_timestamp_seconds", standing.checked_at.timestamp())


READERS: tuple[Reader, ...] = (queue, backlog, outbox, downstreams, processes, secrets, alerts, consistency)
"""Every reader. One that fails, or takes too long, leaves out all: half of the metrics would look like a whole."""


class DatabaseGauges:
    """Reads the metrics of the database. `context`: as the API gets it."""

    def __init__(self, context: Callable[[], Awaitable[Context]], *, readers: tuple[Reader, ...] = READERS) -> None:
        self._context = context
        self._readers = readers
        self._seldom = RateLimitedLogger(log, every=60.0)
        self._reading: asyncio.Task[Samples] | None = None
        self._found: Samples | None = None
        self._until = float("-inf")

    async def samples(self) -> Samples:
        """Return what was read last, or read it: concurrent callers share one reading."""
        if self._found is not None and time.monotonic() < self._until:
            return self._found
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(self._read_ended)
        return await asyncio.shield(self._reading)

    def _read_ended(self, _: object) -> None:
        self._reading = None

    async def _read(self) -> Samples:
        from ..observe.metrics.samples import Samples

        samples = Samples()
        try:
            async with asyncio.timeout(PATIENCE):
                context = await self._context()
                for reader in self._readers:
                    await reader(context, samples)
        except (HookledgerError, TimeoutError) as error:
            self._seldom.warning("the metrics of the database are left out: %s", error or "it did not answer in time")
            return self._keep(_down(), AGAIN)
        except Exception:
            log.exception("the metrics of the database are left out: internal error")
            return self._keep(_down(), AGAIN)
        samples.add("database_up", 1)
        return self._keep(samples, EVERY)

    def _keep(self, samples: Samples, seconds: float) -> Samples:
        self._found, self._until = samples, time.monotonic() + seconds
        return samples


def _down() -> Samples:
    from ..observe.metrics.samples import Samples

    samples = Samples()
    samples.add("database_up", 0)
    return samples
