"""How fast a job goes. Pure: the caller has the clock."""

from __future__ import annotations

STEP = 0.25
"""Seconds' worth of events in one step, if they are not too many."""
MOST = 100
"""Events in one step: they are one transaction, which holds SQLite's write lock for some milliseconds."""
CATCH_UP = 1.0
"""Seconds' worth of events that may be made up for after a delay; what is beyond that is lost."""


class Pace:
    """Steps are due one after another, each as late as its events take at this pace: it is never exceeded over any
    time longer than CATCH_UP. Whoever takes a job over begins anew, so that nothing is made up for what nobody did.
    """

    def __init__(self, per_second: float, now: float, most: int = MOST) -> None:
        """0: as fast as it goes. `most`: events in one step."""
        self._per_second = per_second
        self._done_at = now
        self.size = most if per_second == 0 else max(1, min(most, round(per_second * STEP)))
        """Events in the next step."""

    @property
    def _takes(self) -> float:
        return self.size / self._per_second if self._per_second else 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next step is due."""
        return max(0.0, self._done_at + self._takes - now)

    def stepped(self, now: float) -> None:
        """A step was made."""
        self._done_at = max(self._done_at + self._takes, now - CATCH_UP)
