"""Warns about events that no worker handles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec.structs import astuple
from msgspec.structs import replace as with_version

from ..errors import HookledgerError
from ..model import Kind, base_source
from ..receive.endpoint import Endpoint
from ..store.ops.filters import Filter
from .context import Context
from .workers import handled_by, handles, handles_type, live_workers, version_words

log: logging.Logger = logging.getLogger(__name__)

RECENT = timedelta(days=1)
SHOWN = 10
"""Maximum number of types named in one line."""


class _Found(NamedTuple):
    """What has no handler."""

    kinds: list[Kind]
    """Types."""
    versions: list[Kind]
    """Versions that wait, of types that are handled in others."""
    sources: list[str]


class UnhandledWatch:
    """Warns which events no worker of this application, nor any other live one, will process: at start-up, and when
    new such types wait. Only a warning: another worker may be about to start.

    `skipped_after`: seconds after which such an event is skipped.
    """

    def __init__(self, context: Context, skipped_after: float) -> None:
        self._context = context
        self._skipped_after = skipped_after
        self._said: set[Kind | str] = set()

    async def start(self) -> None:
        await self._tell(recent=True)

    async def run(self, every: float = 10.0) -> None:
        while True:
            await asyncio.sleep(every)
            await self._tell(recent=False)

    async def _tell(self, *, recent: bool) -> None:
        try:
            async with asyncio.timeout(5.0):
                found = await self._find(recent)
        except (HookledgerError, TimeoutError) as error:
            log.debug("cannot check for unhandled events: %s", error)
            return
        kinds, versions = ([one for one in some if one not in self._said] for some in (found.kinds, found.versions))
        new = _Found(kinds, versions, [source for source in found.sources if source not in self._said])
        self._said.update(*new)
        for line in _words(new, self._skipped_after):
            log.warning("%s", line)

    async def _find(self, recent: bool) -> _Found:
        """Return what no live worker handles, this one included. The types wait, or their source's settings name
        them; `recent`: also settled ones that arrived within a day."""
        store, examiner = self._context.store, self._context.sources
        live = handled_by(await live_workers(self._context))
        patterns = [*self._context.application.routes.handles(), *live]
        sources = [name for name in examiner.names if examiner.source(name).plan().runs]

        def needs(kind: Kind) -> bool:
            """Types that a source leaves out, and sources of other applications, need no handler."""
            source = base_source(kind.source)
            return source in sources and examiner.endpoint(source).allows(kind.type)

        def lacks(kind: Kind) -> bool:
            """Whether a type lacks a handler, in every version."""
            return needs(kind) and not handles_type(patterns, kind)

        named = [Kind(name, kind) for name in sources for kind in _named_types(examiner.endpoint(name))]
        waiting = {one.kind for one in await store.waiting()}
        found = {with_version(kind, version="") for kind in (*named, *waiting) if lacks(kind)}
        versions = {kind for kind in waiting if needs(kind) and not lacks(kind) and not handles(patterns, kind)}
        since = datetime.now(UTC) - RECENT
        for kind in filter(lacks, await store.search.kinds() if recent else ()):
            if kind not in found and await store.search.events(Filter(kind.source, kind.type, since=since), limit=1):
                found.add(kind)
        handled = {one.source for one in patterns}
        idle = [source for source in sources if source not in handled]
        return _Found(sorted(found, key=astuple), sorted(versions, key=astuple), idle)


def _named_types(endpoint: Endpoint) -> list[str]:
    """Return the types that the source's settings name exactly: they are expected."""
    return sorted(kind for kind in endpoint.settings.types or () if not kind.endswith("*"))


def _by_source(kinds: list[Kind], words: Callable[[Kind], str] = str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in kinds:
        found.setdefault(kind.source, []).append(words(kind))
    return found


def _words(found: _Found, skipped_after: float) -> list[str]:
    """Return a line for each source."""
    by_source = _by_source(found.kinds)
    then = f"they wait {skipped_after / 60:g} min for one that does, then they are skipped"
    lines = []
    for source, types in by_source.items():
        more = f" and {len(types) - SHOWN} more" if len(types) > SHOWN else ""
        lines.append(
            f"no live worker handles these types of source {source!r}: {', '.join(types[:SHOWN])}{more}; {then}: "
            "declare a handler, or limit the source with types="
        )
    for source, types in _by_source(found.versions, version_words).items():
        more = f" and {len(types) - SHOWN} more" if len(types) > SHOWN else ""
        lines.append(
            f"no live worker handles these versions of source {source!r}: {', '.join(types[:SHOWN])}{more}; they "
            "wait for one that does: declare a handler with version=, or one without it, which takes every version"
        )
    idle = [source for source in found.sources if source not in by_source]
    return lines + [f"no live worker has a handler for source {source!r}: declare one" for source in idle]
