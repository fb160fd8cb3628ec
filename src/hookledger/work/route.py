"""Which handler takes which event or stage: an exact type beats a pattern, a longer pattern a shorter one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..effects.attempt import Stale
from ..effects.model import is_async
from ..errors import ConfigError
from ..model import Kind, Pattern, base_source, covers, overlap, stage_source
from ..observe.blame import named_by, package_of, shortened
from ..retry import RetryPolicy
from .event import Event, SyncEvent

Result = str | dict[str, Any] | None
AsyncFunction = Callable[[Event[Any]], Awaitable[Result]]
PlainFunction = Callable[[SyncEvent[Any]], Result]


class Handler(Struct, frozen=True):
    """One function and how it is to be run; None is whatever the worker's settings say."""

    function: AsyncFunction | PlainFunction
    retry: RetryPolicy | None = None
    timeout: float | None = None
    batch: int = 1
    transaction: bool = True
    """False: a long handler, which claims, works and marks, each step protected by its own effect."""
    replay: Literal["converges"] | None = None
    """The author's word that what it writes outside `event.once` may be written again."""
    stale: Stale | None = None
    """What the first stale guard makes of the whole event; None: `event.newer` answers False, no more."""
    stages: tuple[str, ...] = ()
    """The stages that follow when it has processed an event of the kind that it was found for."""
    only_stages: bool = False
    """It does nothing but begin them."""

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    @property
    def converges(self) -> bool:
        return self.replay == "converges"

    @property
    def package(self) -> str:
        """The top-level package of its code."""
        return package_of(self.function)

    @property
    def label(self) -> str:
        """MODULE.FUNCTION, as causes name it: the same in every process."""
        named = named_by(self.function)
        words = f"{named.__module__}.{named.__qualname__}".replace("<locals>.", "").replace("<lambda>", "lambda")
        return shortened(words)

    @property
    def plain(self) -> bool:
        """Runs in a thread."""
        return not is_async(self.function)


class Routes:
    """Every handler of an inbox; those of a stage under the source NAME/STAGE."""

    def __init__(self, sources: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        """Of no other sources and types a handler is found; empty: of all."""
        self._handlers: dict[Pattern, Handler] = {}
        self._found: dict[Kind, Handler | None] = {}
        self._sources = sources
        self._types = types

    def add(self, source: str, pattern: str, handler: Handler, stage: str | None = None) -> None:
        """Two handlers for one type or pattern of a source, or of one of its stages, is a mistake, and said so at
        start-up."""
        _check_pattern(pattern)
        name = source if stage is None else stage_source(source, stage)
        if (name, pattern) in self._handlers:
            other, where = self._handlers[name, pattern].name, "" if stage is None else f" in stage {stage!r}"
            raise ConfigError(f"source {source!r}: both {other} and {handler.name} handle {pattern!r}{where}")
        self._handlers[name, pattern] = handler
        self._found.clear()

    def only(self, sources: Sequence[str], types: Sequence[str]) -> Routes:
        """The handlers of these sources, with their stages, or of a stage SOURCE/STAGE alone, and of these types or
        patterns; empty: of all. ConfigError where one of them has no handler, which a dedicated worker would never
        notice. An event has all stages of the application, whichever worker processes it."""
        for kind in types:
            _check_pattern(kind)
        chosen = Routes(sources, types)
        chosen._handlers = self._handlers
        for source in sources:
            if not any(source == other for other, _ in chosen.handles()):
                raise self._not_handled(f"source {source!r}")
        for kind in types:
            if not any(overlap(pattern, kind) for _, pattern in chosen.handles()):
                raise self._not_handled(f"type {kind!r}")
        return chosen

    def _not_handled(self, what: str) -> ConfigError:
        declared = ", ".join(f"{source}: {pattern}" for source, pattern in self.handles()) or "none"
        return ConfigError(
            f"a worker cannot be dedicated to {what}: no handler matches; the handlers are: {declared}"
        )

    def _serves(self, source: str) -> bool:
        return not self._sources or source in self._sources or base_source(source) in self._sources

    def handles(self) -> list[Pattern]:
        """(source, pattern) of every handler, as other workers are told. Who has a stage takes its events, too."""
        patterns = {*self._handlers, *((base_source(name), pattern) for name, pattern in self._handlers)}
        served = [(name, pattern) for name, pattern in patterns if self._serves(name)]
        if not self._types:
            return sorted(served)
        found = ((name, overlap(pattern, kind)) for name, pattern in served for kind in self._types)
        return sorted({(name, pattern) for name, pattern in found if pattern is not None})

    def longest_timeout(self, default: float) -> float:
        """Of any handler here."""
        return max([default, *(h.timeout for h in self._handlers.values() if h.timeout is not None)])

    def all(self) -> list[Handler]:
        return list(self._handlers.values())

    def served(self) -> list[tuple[str, Handler]]:
        """Each handler that may run here, with its source, or NAME/STAGE."""
        return [(name, handler) for (name, _), handler in self._handlers.items() if self._serves(name)]

    def find(self, kind: Kind) -> Handler | None:
        """The handler for this kind, if there is one. An event that has only stages has one, which does nothing but
        begin them."""
        if kind not in self._found:
            self._found[kind] = self._look_up(kind)
        return self._found[kind]

    def _look_up(self, kind: Kind) -> Handler | None:
        if not self._serves(kind.source) or (self._types and not any(covers(t, kind.type) for t in self._types)):
            return None
        patterns = [p for source, p in self._handlers if source == kind.source and covers(p, kind.type)]
        best = max(patterns, key=lambda p: (p == kind.type and not p.endswith("*"), len(p)), default=None)
        handler = None if best is None else self._handlers[kind.source, best]
        stages = self._stages(kind)
        return replace(handler or begins(stages), stages=stages) if stages else handler

    def _stages(self, kind: Kind) -> tuple[str, ...]:
        """The stages of events of this kind, by name."""
        prefix = stage_source(kind.source, "")
        found = {name for name, pattern in self._handlers if name.startswith(prefix) and covers(pattern, kind.type)}
        return tuple(sorted(name.removeprefix(prefix) for name in found))


def begins(stages: tuple[str, ...]) -> Handler:
    """The handler of an event that has only stages. Without a transaction: it writes nothing itself."""

    async def begin_stages(event: Event[Any]) -> Result:
        return f"stages: {', '.join(stages)}"

    begin_stages.__qualname__ = begin_stages.__name__
    return Handler(begin_stages, transaction=False, replay="converges", only_stages=True)


def _check_pattern(pattern: str) -> None:
    if not pattern or "*" in pattern[:-1]:
        raise ConfigError(f"{pattern!r} is not an event type: a * may only stand at the end")
