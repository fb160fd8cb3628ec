"""Retention settings: how long data is kept."""

from __future__ import annotations

from msgspec import Struct

from ...clock import NEVER, Keep, Seconds
from ...errors import ConfigError
from ...receive.settings import SourceRetention


class RetentionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[retention]`: how long finished events are kept, unless their source says otherwise. Nothing is deleted unless
    a period is set. Event keys and effect keys are kept forever."""

    payloads: Keep = Keep("never")
    """Body, headers and query of finished events; without them an event cannot be replayed. Dead letters keep theirs.
    """
    history: Keep = Keep("never")
    """Tracebacks of attempts and calls, and the rows of duplicates."""
    events: Keep = Keep("never")
    """Processed, skipped and discarded events, entirely."""
    failed: Keep = Keep("never")
    """Dead letters, entirely; separate from `events`, because they still need a decision."""
    batch: int = 500
    """Maximum rows examined in one transaction; fewer if they take longer than `batch_time`."""
    batch_time: Seconds = Seconds("20ms")
    """Target duration of one transaction. On SQLite every acknowledgement waits for it; on PostgreSQL it may take ten
    times as long."""
    batch_delay: Seconds = Seconds("50ms")
    """Minimum pause between two transactions; never shorter than the last one took."""
    interval: Seconds = Seconds("10m")
    """How often a worker looks for expired data."""
    full_scan_interval: Seconds = Seconds("24h")
    """How often it starts again with the oldest event, since some could not be deleted the first time."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.batch_time <= 0 or self.interval <= 0:
            raise ConfigError("[retention] batch must be at least 1, batch_time and interval greater than 0")


class Limits(Struct, frozen=True):
    """The limits of one source, in seconds; infinite: never deleted."""

    payloads: float = NEVER
    history: float = NEVER
    events: float = NEVER
    failed: float = NEVER

    @property
    def any(self) -> bool:
        return min(self.payloads, self.history, self.events, self.failed) < NEVER


def limits(settings: RetentionSettings, source: SourceRetention | None = None) -> Limits:
    """Return a source's limits; its own settings first."""

    def of(name: str) -> float:
        own = getattr(source, name) if source is not None else None
        return float(getattr(settings, name) if own is None else own)

    return Limits(of("payloads"), of("history"), of("events"), of("failed"))
