"""The clock, with an offset that tests can set.

The database's clock decides leases and due times. The PostgreSQL store adds
this offset to `clock_timestamp()`; the SQLite store uses this clock.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from .errors import ConfigError

SKEW_LIMIT = 30.0
"""Clock skew in seconds between host and database; beyond it a stale or future timestamp gets 503 instead of 401."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Seconds(float):
    """A duration: a number of seconds, or text such as `500ms`, `30s`, `15m`, `24h`, `3d`."""

    def __new__(cls, value: float | str) -> Seconds:
        if isinstance(value, str):
            match = _DURATION.fullmatch(value.strip())
            if match is None:
                raise ConfigError(f"{value!r} is not a duration: write 500ms, 30s, 15m, 24h or 3d")
            value = float(match[1]) * _UNITS[match[2]]
        if isinstance(value, bool) or not 0 <= value < float("inf"):
            raise ConfigError(f"{value!r} is not a duration: it must be zero or more seconds")
        return super().__new__(cls, value)


NEVER = float("inf")


class Keep(Seconds):
    """A retention period: a duration, or `never` to delete nothing."""

    def __new__(cls, value: float | str) -> Keep:
        if value in ("never", NEVER):
            return float.__new__(cls, NEVER)
        return super().__new__(cls, value)  # type: ignore[return-value]


class Clock:
    """Wall time plus `offset` seconds."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def time(self) -> float:
        return time.time() + self.offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)
