"""Warns about events that no worker handles."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from msgspec.structs import astuple

from ..errors import HookledgerError
from ..model import Kind, base_source
from ..receive.endpoint import Endpoint
from ..store.ops.filters import Filter
from .context import Context
from .workers import handled_by, handles, live_workers

log: logging.Logger = logging.getLogger(__name__)

RECENT = timedelta(days=1)
SHOWN = 10
"""Maximum number of types named in one line."""


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
                kinds, sources = await self._find(recent)
        except (HookledgerError, TimeoutError) as error:
            log.debug("cannot check for unhandled events: %s", error)
            return
        kinds = [kind for kind in kinds if kind not in self._said]
        sources = [source for source in sources if source not in self._said]
        self._said.update(kinds, sources)
        for line in _words(kinds, sources, self._skipped_after):
            log.warning("%s", line)

    async def _find(self, recent: bool) -> tuple[list[Kind], list[str]]:
        """Return the types that no live worker handles, this one included, and the sources without any handler. The
        types wait, or their source's settings name them; `recent`: also settled ones that arrived within a day."""
        store, examiner = self._context.store, self._context.sources
        live = handled_by(await live_workers(self._context))
        patterns = [*self._context.application.routes.handles(), *live]
        sources = [name for name in examiner.names if examiner.source(name).plan().runs]

        def lacks(kind: Kind) -> bool:
            """Whether a kind lacks a handler; types that a source leaves out, and sources of other applications, need
            none."""
            if base_source(kind.source) not in sources or handles(patterns, kind):
                return False
            return examiner.endpoint(base_source(kind.source)).allows(kind.type)

        named = [Kind(name, kind) for name in sources for kind in _named_types(examiner.endpoint(name))]
        found = {kind for kind in (*named, *(one.kind for one in await store.waiting())) if lacks(kind)}
        since = datetime.now(UTC) - RECENT
        for kind in filter(lacks, await store.search.kinds() if recent else ()):
            if kind not in found and await store.search.events(Filter(kind.source, kind.type, since=since), limit=1):
                found.add(kind)
        handled = {source for source, _ in patterns}
        return sorted(found, key=astuple), [source for source in sources if source not in handled]


def _named_types(endpoint: Endpoint) -> list[str]:
    """Return the types that the source's settings name exactly: they are expected."""
    return sorted(kind for kind in endpoint.settings.types or () if not kind.endswith("*"))


def _words(kinds: list[Kind], sources: list[str], skipped_after: float) -> list[str]:
    """Return a line for each source."""
    by_source: dict[str, list[str]] = {}
    for kind in kinds:
        by_source.setdefault(kind.source, []).append(kind.type)
    then = f"they wait {skipped_after / 60:g} min for one that does, then they are skipped"
    lines = []
    for source, types in by_source.items():
        more = f" and {len(types) - SHOWN} more" if len(types) > SHOWN else ""
        lines.append(
            f"no live worker handles these types of source {source!r}: {', '.join(types[:SHOWN])}{more}; {then}: "
            "declare a handler, or limit the source with types="
        )
    idle = [source for source in sources if source not in by_source]
    return lines + [f"no live worker has a handler for source {source!r}: declare one" for source in idle]
