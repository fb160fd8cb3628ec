"""Which events no worker handles: said when a worker starts, and by `lag`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from ..errors import HookledgerError
from ..filters import Filter
from ..model import Kind, Pattern, covers
from ..store.protocol import Store
from ..store.search import Lag
from .receiving import Receiving

log = logging.getLogger(__name__)

RECENT = timedelta(days=1)
SHOWN = 10
"""Types that one line names."""


def handles(patterns: Sequence[Pattern], kind: Kind) -> bool:
    return any(source == kind.source and covers(pattern, kind.type) for source, pattern in patterns)


async def live_patterns(store: Store, lease: float) -> list[Pattern] | None:
    """What the workers that live handle; None if there is none."""
    live = [worker for worker in await store.workers() if worker.alive(lease)]
    return [pattern for worker in live for pattern in worker.handles] if live else None


def mark_unhandled(lag: Lag, live: list[Pattern] | None, here: Callable[[Kind], bool] | None) -> Lag:
    """`here`: what this application declares, which counts where no worker lives; None without one."""
    if live is not None:
        return lag if handles(live, lag.kind) else msgspec.structs.replace(lag, unhandled="no handler")
    if here is None or here(lag.kind):
        return lag
    return msgspec.structs.replace(lag, unhandled="no handler here")


class Unhandled(Struct, frozen=True):
    """What no live worker handles, the one that starts included."""

    kinds: list[Kind]
    """That wait, came within a day, or are named by the settings of their source."""
    sources: list[str]
    """Without any handler."""


class Patience(Protocol):
    """What a worker's settings say."""

    @property
    def lease(self) -> float: ...
    @property
    def unhandled_after(self) -> float: ...


class UnhandledWatch:
    """Says which events neither a worker with the patterns `mine` nor any other that lives will process: at its
    start, and when more such types wait. No reason to refuse: another worker may be about to start.
    """

    def __init__(self, store: Store, receiving: Receiving, mine: Sequence[Pattern], work: Patience) -> None:
        self._store = store
        self._receiving = receiving
        self._mine = mine
        self._work = work
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
            log.debug("what no worker handles is not known: %s", error)
            return
        new = Unhandled(
            [kind for kind in found.kinds if kind not in self._said],
            [source for source in found.sources if source not in self._said],
        )
        self._said.update(new.kinds, new.sources)
        for line in words(new, self._work.unhandled_after):
            log.warning("%s", line)

    async def _find(self, recent: bool) -> Unhandled:
        """`recent`: also what is settled by now, and came within a day."""
        store, receiving = self._store, self._receiving
        patterns = [*self._mine, *(await live_patterns(store, self._work.lease) or [])]
        sources = [source for source in receiving.sources() if receiving.plan(source).runs]

        def lacks(kind: Kind) -> bool:
            """What a source leaves out, and sources of other applications, need no handler here."""
            return kind.source in sources and receiving.takes(kind.source, kind.type) and not handles(patterns, kind)

        named = [Kind(source, kind) for source in sources for kind in receiving.named_types(source)]
        found = {kind for kind in (*named, *(one.kind for one in await store.waiting())) if lacks(kind)}
        since = datetime.now(UTC) - RECENT
        for kind in filter(lacks, await store.search.kinds() if recent else ()):
            if kind not in found and await store.search.events(Filter(kind.source, kind.type, since=since), limit=1):
                found.add(kind)
        handled = {source for source, _ in patterns}
        return Unhandled(sorted(found, key=astuple), [source for source in sources if source not in handled])


def words(found: Unhandled, skipped_after: float) -> list[str]:
    """A line for each source."""
    by_source: dict[str, list[str]] = {}
    for kind in found.kinds:
        by_source.setdefault(kind.source, []).append(kind.type)
    then = f"they wait {skipped_after / 60:g} min for one that does, then they are skipped"
    lines = []
    for source, types in by_source.items():
        more = f" and {len(types) - SHOWN} more" if len(types) > SHOWN else ""
        lines.append(
            f"no live worker handles these types of source {source!r}: {', '.join(types[:SHOWN])}{more}; {then}: "
            "declare a handler, or let types= name only what is handled"
        )
    idle = [source for source in found.sources if source not in by_source]
    return lines + [f"no live worker has a handler for source {source!r}: declare one" for source in idle]
