"""Which events somebody means: what lists, bulk work, export and erasure have in common."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from .errors import ConfigError
from .states import State


class Filter(Struct, frozen=True, forbid_unknown_fields=True):
    """Events for which everything holds that is given; all of them if nothing is."""

    source: str | None = None
    type: str | None = None
    """Exact, or ending in `*`."""
    states: tuple[State, ...] = ()
    """In one of these; in any if there is none."""
    key: str | None = None
    """The event key as it is shown."""
    object_id: str | None = None
    """The provider's id of what the event is about."""
    text: str | None = None
    """Somewhere in the body, exactly so."""
    error: str | None = None
    """Somewhere in the reason or the error."""
    since: datetime | None = None
    """Received then or later."""
    until: datetime | None = None
    """Received before then."""
    attention: bool = False
    """Only those that a person should look at."""

    def __post_init__(self) -> None:
        for name in ("source", "type", "key", "object_id", "text", "error"):
            value = getattr(self, name)
            if value == "":
                raise ConfigError(f"the filter's {name} is empty")
            if value is not None and "\0" in value:
                raise ConfigError(f"the filter's {name} has a NUL in it")
        for moment in (self.since, self.until):
            if moment is not None and moment.tzinfo is None:
                raise ConfigError("the filter's since and until need a time zone")


EVERYTHING = Filter()
