"""How a source is reconciled with its provider's log, and the window of one comparison."""

from __future__ import annotations

from datetime import datetime, time

from msgspec import Struct

from ...errors import ConfigError
from ...providers.listing.base import Lister


class Plan(Struct, frozen=True):
    """How a source is reconciled."""

    lister: Lister | None
    """None: the provider's log cannot be read."""
    look_back: float
    """Seconds that a comparison reaches back by default."""
    at: time | None
    """Daily at this time, in UTC; None: only when an operator asks."""
    repairs: bool
    """Whether the source has a repair handler."""
    runs: bool
    """Whether its handlers run; False while it observes."""


class Window(Struct, frozen=True):
    """The window of a comparison."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        if self.since.tzinfo is None or self.until.tzinfo is None:
            raise ConfigError("the window's times need a time zone")
        if self.since >= self.until:
            raise ConfigError(f"the window must end after it begins: from {self.since} to {self.until}")
