"""Which handler takes which event: an exact type beats a pattern, a longer pattern a shorter one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct

from ..effects.attempt import Stale
from ..effects.model import is_async
from ..errors import ConfigError
from ..model import Kind, covers, overlap
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
    """Every handler of an inbox."""

    def __init__(self, types: Sequence[str] = ()) -> None:
        """`types`: of no others a handler is found; empty: of all."""
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._found: dict[Kind, Handler | None] = {}
        self._types = types

    def add(self, source: str, pattern: str, handler: Handler) -> None:
        """Two handlers for one type or pattern of a source is a mistake, and said so at start-up."""
        _check_pattern(pattern)
        if (source, pattern) in self._handlers:
            other = self._handlers[source, pattern].name
            raise ConfigError(f"source {source!r}: both {other} and {handler.name} handle {pattern!r}")
        self._handlers[source, pattern] = handler
        self._found.clear()

    def only(self, sources: Sequence[str], types: Sequence[str]) -> Routes:
        """The handlers of these sources and of these types or patterns; empty: of all. ConfigError where one of them
        has no handler, which a dedicated worker would never notice."""
        for kind in types:
            _check_pattern(kind)
        chosen = Routes(types)
        for (source, pattern), handler in self._handlers.items():
            if (not sources or source in sources) and (not types or any(overlap(pattern, kind) for kind in types)):
                chosen.add(source, pattern, handler)
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

    def handles(self) -> list[tuple[str, str]]:
        """(source, pattern) of every handler, as other workers are told."""
        if not self._types:
            return sorted(self._handlers)
        found = ((source, overlap(pattern, kind)) for source, pattern in self._handlers for kind in self._types)
        return sorted({(source, pattern) for source, pattern in found if pattern is not None})

    def longest_timeout(self, default: float) -> float:
        """Of any handler here."""
        return max([default, *(h.timeout for h in self._handlers.values() if h.timeout is not None)])

    def all(self) -> list[Handler]:
        return list(self._handlers.values())

    def find(self, kind: Kind) -> Handler | None:
        """The handler for this kind, if there is one."""
        if kind not in self._found:
            if self._types and not any(covers(chosen, kind.type) for chosen in self._types):
                self._found[kind] = None
                return None
            patterns = [p for source, p in self._handlers if source == kind.source and covers(p, kind.type)]
            best = max(patterns, key=lambda p: (p == kind.type and not p.endswith("*"), len(p)), default=None)
            self._found[kind] = None if best is None else self._handlers[kind.source, best]
        return self._found[kind]


def _check_pattern(pattern: str) -> None:
    if not pattern or "*" in pattern[:-1]:
        raise ConfigError(f"{pattern!r} is not an event type: a * may only stand at the end")
