"""The settings of a worker, and its name."""

from __future__ import annotations

from msgspec import Struct

from ..clock import Seconds
from ..effects.circuit import CircuitSettings
from ..effects.outbox import OutboxSettings
from ..errors import ConfigError
from ..ids import process_name
from ..observe.metrics.rollup import PATIENCE as RATES_END
from ..retry import RetryPolicy

CLAIM_END = 5.0
"""Seconds that a stopping worker waits for the reply to the outbox's claim,"""
CANCEL_END = 5.0
"""for handlers that it cancelled, twice,"""
CALLS_END = 5.0
"""for calls of effects,"""
SETTLE_END = 5.0
"""for outcomes that are being written,"""
EXIT_END = 2.0
"""and for other tasks at the end of its process."""

HEAR = 1 / 40
"""Of a lease: how long the event loop has to hear of a commit that the heartbeat knows of. What could not be renewed
is given up a tenth before its lease ends, or at the next turn, a twentieth later: it still ends before its lease."""


class WorkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[work]` in hookledger.toml."""

    concurrency: int = 16
    """Concurrent handlers."""
    lease: Seconds = Seconds("60s")
    """How long a claim holds without a heartbeat; a crashed worker's events wait this long."""
    poll: Seconds = Seconds("200ms")
    """Between looks at an empty queue."""
    shutdown_timeout: Seconds = Seconds("25s")
    """How long running handlers may take to finish when the worker is told to stop."""
    prefetch: Seconds = Seconds("100ms")
    """Work that may be claimed before a slot is free for it."""
    timeout: Seconds = Seconds("30s")
    """For a handler that names none itself."""
    unhandled_after: Seconds = Seconds("1h")
    """How long an event waits for a worker that handles its type, in any version, before it is skipped."""
    transaction_limit: Seconds = Seconds("1s")
    """How long a handler may hold SQLite's write lock."""
    retry: RetryPolicy = RetryPolicy()
    """For a handler that names none itself."""
    bug_attempts: int = 3
    """Attempts when your own code raises KeyError, TypeError, AttributeError, NameError or AssertionError; for a
    handler that names no retry policy itself."""
    outbox: OutboxSettings = OutboxSettings()
    circuit: CircuitSettings = CircuitSettings()

    @property
    def longest_stop(self) -> float:
        """Seconds that a worker may take to stop: the limits of `Worker._run` and `_shut_down`, one after the other,
        and those of the heartbeat and of the process's end. It is that long only if handlers and calls ignore their
        cancellation and the database does not answer."""
        heartbeat = self.lease / 3 + min(self.lease / 20, 1.0)
        ends = CLAIM_END + 2 * CANCEL_END + CALLS_END + 1.0 + SETTLE_END + RATES_END + EXIT_END
        return self.shutdown_timeout + ends + heartbeat

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.lease < 0.5 or self.poll <= 0 or self.timeout <= 0 or self.bug_attempts < 1:
            raise ConfigError(
                "[work] needs concurrency >= 1, lease >= 500ms, poll > 0, timeout > 0, bug_attempts >= 1"
            )


def worker_name() -> str:
    """Who we are to the other workers and in the evidence: never the same twice."""
    return process_name()
