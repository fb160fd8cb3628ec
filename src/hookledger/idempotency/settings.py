"""The settings of a guard."""

from __future__ import annotations

from msgspec import Struct

from ..errors import ConfigError


class GuardSettings(Struct, frozen=True):
    """How guarded requests are carried out and answered."""

    keep: float
    """Seconds for which answers are stored."""
    wait: float | None
    """Seconds for which a repetition waits for the first request; None: 409."""
    timeout: float
    """Seconds for a route."""
    lease: float
    """Seconds after which a process that shows no sign of life has lost what it runs."""
    store_4xx: bool
    required: bool
    """Whether a request without a key is refused."""
    max_body: int
    max_answer: int
    concurrency: int
    """Routes that run concurrently in one process."""
    queue: int
    """Requests that wait for their turn in one process."""
    waiting: int
    """Requests that wait for one answer in one process."""
    body_bytes: int
    """Bytes in memory of all bodies that are not answered yet."""
    upload: float
    """Seconds for a body to arrive."""
    plain: bool
    """Whether the routes are plain functions."""
    shutdown: float
    """Seconds for what runs when the application stops."""

    def __post_init__(self) -> None:
        positive = (self.keep, self.timeout, self.upload, self.max_body, self.max_answer, self.concurrency)
        if min(*positive, self.queue) <= 0 or self.lease < 0.5 or (self.wait is not None and self.wait <= 0):
            raise ConfigError(
                "keep, wait, timeout, max_body, max_answer, concurrency and queue must be greater than 0, and lease "
                "at least 500ms"
            )
