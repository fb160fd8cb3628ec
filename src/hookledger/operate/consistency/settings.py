"""When workers check consistency."""

from __future__ import annotations

from datetime import time

from msgspec import Struct

from ...clock import Seconds
from ...errors import ConfigError


class ConsistencySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[consistency]`: when workers check that everything is accounted for. One worker at a time does it, in short
    reads that block no acknowledgement."""

    enabled: bool = True
    """Whether workers check at all; `hookledger check` works in any case."""
    interval: Seconds = Seconds("1h")
    """How often to check what arrived since the last check, and what operators acted on."""
    full_at: str = "03:00"
    """Time of day, in UTC, of the full check, which reads every row. A worker that starts later makes up for it."""

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise ConfigError("[consistency] interval must be greater than 0; enabled = false turns the checks off")
        try:
            time.fromisoformat(self.full_at)
        except ValueError:
            raise ConfigError(f"[consistency] full_at {self.full_at!r} is not a time of day: write 03:00") from None

    @property
    def at(self) -> time:
        return time.fromisoformat(self.full_at).replace(tzinfo=None)
