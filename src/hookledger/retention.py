"""Retention: how long what is kept."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from .clock import Seconds
from .errors import ConfigError

NEVER = float("inf")


class Keep(Seconds):
    """How long something is kept: a duration, or `never` for what is never taken away."""

    def __new__(cls, value: float | str) -> Keep:
        if value in ("never", NEVER):
            return float.__new__(cls, NEVER)
        return super().__new__(cls, value)  # type: ignore[return-value]


class SourceRetention(Struct, frozen=True, forbid_unknown_fields=True):
    """`[sources.NAME.retention]`: what a source keeps longer or shorter than the others. Counted from the moment that
    an event was finished. Its key and the keys of its effects stay in any case."""

    payloads: Keep | None = None
    """The bytes, headers and query of finished events; without them an event cannot be replayed. `[retention]` if
    none."""
    history: Keep | None = None
    """Tracebacks of attempts and calls, and the rows of plain duplicates. `[retention]` if none."""
    events: Keep | None = None
    """Events that are processed, skipped or discarded, wholly. `[retention]` if none."""
    failed: Keep | None = None
    """Events in the dead letter, wholly. `[retention]` if none."""


class RetentionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[retention]`: how long finished events are kept, where their source does not say otherwise. Nothing is ever
    taken away unless it is named. Event keys and effect keys stay for ever."""

    payloads: Keep = Keep("never")
    """The bytes, headers and query of finished events; without them an event cannot be replayed. Those in the dead
    letter keep theirs."""
    history: Keep = Keep("never")
    """Tracebacks of attempts and calls, and the rows of plain duplicates."""
    events: Keep = Keep("never")
    """Events that are processed, skipped or discarded, wholly."""
    failed: Keep = Keep("never")
    """Events in the dead letter, wholly: not with `events`, because nobody has dealt with them yet."""
    batch: int = 500
    """Rows looked at in one transaction, at most; fewer where they take longer than `hold`."""
    hold: Seconds = Seconds("20ms")
    """What one transaction should take. On SQLite every ack waits that long; on PostgreSQL nobody does, and it may
    take ten times as long."""
    pause: Seconds = Seconds("50ms")
    """Between two transactions, at least; never shorter than what the last one took."""
    every: Seconds = Seconds("10m")
    """How often a worker looks for what is due."""
    again: Seconds = Seconds("24h")
    """How often it begins anew with the oldest: some could not be taken the first time."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.hold <= 0 or self.every <= 0:
            raise ConfigError("retention needs a batch of at least 1, and hold and every above 0")


class Limits(Struct, frozen=True):
    """What holds for one source, in seconds; infinite for what is never taken away."""

    payloads: float = NEVER
    history: float = NEVER
    events: float = NEVER
    failed: float = NEVER

    @property
    def any(self) -> bool:
        return min(self.payloads, self.history, self.events, self.failed) < NEVER


def limits(settings: RetentionSettings, source: SourceRetention | None = None) -> Limits:
    """A source's own words first."""

    def of(name: str) -> float:
        own = getattr(source, name) if source is not None else None
        return float(getattr(settings, name) if own is None else own)

    return Limits(of("payloads"), of("history"), of("events"), of("failed"))


def source_retention(name: str, given: SourceRetention | Mapping[str, float | str] | None) -> SourceRetention:
    """Of a source that is declared in Python."""
    if not isinstance(given, Mapping):
        return given or SourceRetention()
    unknown = given.keys() - set(SourceRetention.__struct_fields__)
    if unknown:
        known = ", ".join(SourceRetention.__struct_fields__)
        raise ConfigError(f"source {name!r}: retention knows {known}, not {min(unknown)!r}")
    return SourceRetention(**{key: Keep(value) for key, value in given.items()})
