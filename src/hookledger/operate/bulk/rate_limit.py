"""Limits the rate of a job. Pure: the caller passes the time."""

from __future__ import annotations

STEP = 0.25
"""Seconds of events in one step, up to MOST."""
MOST = 100
"""Maximum events in one step: a step is one transaction, which holds SQLite's write lock for some milliseconds."""
CATCH_UP = 1.0
"""Seconds of events that may be made up after a delay."""


class RateLimit:
    """Schedules steps so that the rate is never exceeded over any time longer than CATCH_UP. A worker that reclaims a
    job starts a new schedule: time without a worker is not made up."""

    def __init__(self, per_second: float, now: float, most: int = MOST) -> None:
        """`per_second` 0: unlimited. `most`: maximum events in one step."""
        self._per_second = per_second
        self._done_at = now
        self.size: int = most if per_second == 0 else max(1, min(most, round(per_second * STEP)))
        """Events in the next step."""

    @property
    def _takes(self) -> float:
        return self.size / self._per_second if self._per_second else 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next step is due."""
        return max(0.0, self._done_at + self._takes - now)

    def stepped(self, now: float) -> None:
        """Record that a step was made."""
        self._done_at = max(self._done_at + self._takes, now - CATCH_UP)
