"""How handlers that answer are run."""

from __future__ import annotations

from msgspec import Struct

from ..clock import Seconds
from ..errors import ConfigError


class AnswerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[answers]`: handlers declared with `answer`, in the process that runs them."""

    lease: Seconds = Seconds("10s")
    """How long a claim holds without a heartbeat; after a crash the next delivery of the event can run it again."""
    concurrency: int = 16
    """Concurrent handlers."""
    queue: int = 512
    """Deliveries that may wait for their answers, and events that may be handled or wait for it, also past their
    deadlines; beyond it the receiver answers 503. Each delivery holds one of the receiver's 1,024 connections."""
    waiting: int = 128
    """Deliveries of one event that may wait for its answer; beyond it the receiver answers 429."""

    def __post_init__(self) -> None:
        if self.lease < 0.5 or self.concurrency < 1 or self.queue < 1 or self.waiting < 1:
            raise ConfigError("[answers] needs lease >= 500ms, and concurrency, queue and waiting at least 1")
