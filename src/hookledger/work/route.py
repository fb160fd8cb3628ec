"""Which handler takes which event or stage: of those that match type and version the one with the most exact type,
then the one with the most exact version. Exact beats a pattern, a longer pattern a shorter one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ..answer import Answer, AnswerRule
from ..effects.attempt import Stale
from ..effects.model import is_async
from ..errors import ConfigError
from ..model import ANY_VERSION, MAX_VERSION, Kind, Pattern, base_source, covers, overlap, stage_source
from ..observe.blame import named_by, package_of, shortened
from ..retry import RetryPolicy
from ..schemas.typed import Body
from .event import Event, SyncEvent

Result = str | dict[str, Any] | None
Returned = Result | Answer
"""What a handler returns: an Answer if it is declared with `answer`."""
AsyncFunction = Callable[[Event[Any]], Awaitable[Returned]]
PlainFunction = Callable[[SyncEvent[Any]], Returned]


REMEMBERED = 10_000
"""Kinds whose handler is remembered: types and versions come from outside, and a source may read its versions from a
field that is different in each event."""


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
    body: Body | None = None
    """What makes `event.content` of an event's content; None: it is the content as it was decoded."""
    stages: tuple[str, ...] = ()
    """The stages that follow when it has processed an event of the kind that it was found for."""
    answers: AnswerRule | None = None
    """How requests are answered whose events it handles; None: it answers none."""
    only_stages: bool = False
    """It does nothing but begin them."""
    reads_content: bool = True
    """False: an event whose content breaks its schema is decided like any other."""
    by_request: float | None = None
    """Seconds for which an event waits for the next request with its key, which alone runs its route (decision 0065);
    None: workers run it."""

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

    def add(
        self, source: str, pattern: str, handler: Handler, stage: str | None = None, version: str | None = None
    ) -> None:
        """Two handlers for one type or pattern of a source, or of one of its stages, in the same version or pattern
        of versions, is a mistake, and said so at start-up."""
        _check_pattern(pattern)
        name = source if stage is None else stage_source(source, stage)
        added = Pattern(name, pattern, ANY_VERSION if version is None else version)
        if added in self._handlers:
            other, where = self._handlers[added].name, "" if stage is None else f" in stage {stage!r}"
            of = "" if added.version == ANY_VERSION else f" in version {added.version!r}"
            raise ConfigError(f"source {source!r}: both {other} and {handler.name} handle {pattern!r}{of}{where}")
        self._handlers[added] = handler
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
            if not any(source == one.source for one in chosen.handles()):
                raise self._not_handled(f"source {source!r}")
        for kind in types:
            if not any(overlap(one.type, kind) for one in chosen.handles()):
                raise self._not_handled(f"type {kind!r}")
        return chosen

    def _not_handled(self, what: str) -> ConfigError:
        declared = ", ".join(f"{one.source}: {one}" for one in self.handles()) or "none"
        return ConfigError(
            f"a worker cannot be dedicated to {what}: no handler matches; the handlers are: {declared}"
        )

    def _serves(self, source: str) -> bool:
        return not self._sources or source in self._sources or base_source(source) in self._sources

    def handles(self) -> list[Pattern]:
        """What every handler processes, as other workers are told. Who has a stage takes its events, too."""
        patterns = {*self._handlers, *(one._replace(source=base_source(one.source)) for one in self._handlers)}
        served = [one for one in patterns if self._serves(one.source)]
        if not self._types:
            return sorted(served)
        found = ((one, overlap(one.type, kind)) for one in served for kind in self._types)
        return sorted({one._replace(type=both) for one, both in found if both is not None})

    def longest_timeout(self, default: float) -> float:
        """Of any handler here."""
        return max([default, *(h.timeout for h in self._handlers.values() if h.timeout is not None)])

    def all(self) -> list[Handler]:
        return list(self._handlers.values())

    def served(self) -> list[tuple[str, Handler]]:
        """Each handler that may run here, with its source, or NAME/STAGE."""
        return [(one.source, handler) for one, handler in self._handlers.items() if self._serves(one.source)]

    def answering(self, source: str) -> list[str]:
        """The types and patterns of a source whose handlers answer."""
        found = self._handlers.items()
        return sorted(one.type for one, handler in found if one.source == source and handler.answers)

    def find(self, kind: Kind) -> Handler | None:
        """The handler for this kind, if there is one. An event that has only stages has one, which does nothing but
        begin them."""
        try:
            return self._found[kind]
        except KeyError:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            return self._found.setdefault(kind, self._look_up(kind))

    def _look_up(self, kind: Kind) -> Handler | None:
        if not self._serves(kind.source) or (self._types and not any(covers(t, kind.type) for t in self._types)):
            return None
        best = max((one for one in self._handlers if one.takes(kind)), key=_exactness, default=None)
        handler = None if best is None else self._handlers[best]
        stages = self._stages(kind)
        return replace(handler or begins(stages), stages=stages) if stages else handler

    def _stages(self, kind: Kind) -> tuple[str, ...]:
        """The stages of events of this kind, by name."""
        prefix = stage_source(kind.source, "")
        stages = (one for one in self._handlers if one.source.startswith(prefix))
        found = {one.source for one in stages if one._replace(source=kind.source).takes(kind)}
        return tuple(sorted(name.removeprefix(prefix) for name in found))


def _exactness(one: Pattern) -> tuple[bool, int, bool, int]:
    """The higher, the more exact: the type decides before the version."""
    return not one.type.endswith("*"), len(one.type), not one.version.endswith("*"), len(one.version)


def begins(stages: tuple[str, ...]) -> Handler:
    """The handler of an event that has only stages. Without a transaction: it writes nothing itself."""

    async def begin_stages(event: Event[Any]) -> Result:
        return f"stages: {', '.join(stages)}"

    begin_stages.__qualname__ = begin_stages.__name__
    return Handler(begin_stages, transaction=False, replay="converges", only_stages=True)


def _check_pattern(pattern: str) -> None:
    if not pattern or "*" in pattern[:-1]:
        raise ConfigError(f"{pattern!r} is not an event type: a * may only stand at the end")


def check_version_pattern(pattern: object) -> str:
    """Return the versions that a handler takes. Raises ConfigError for anything else."""
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_VERSION or "*" in pattern[:-1]:
        raise ConfigError(
            f"{pattern!r} is not a version: use text of 1 to {MAX_VERSION} characters; a * may only stand at the end"
        )
    return pattern
