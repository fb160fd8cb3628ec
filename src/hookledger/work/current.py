"""What an object is now: fetched by the source's own function or by a ready-made fetcher, with a ticket.

Fetching alone loses updates: A fetches, the object changes, B fetches and writes the new state, and A writes the old
one. A ticket decides between them. It is drawn before the fetch, and a state is written only if its ticket is higher
than that of the state it replaces (`event.newer(…, event.ticket)`). Then the last change is never lost:

    The handler of its event draws its ticket after the change. Every higher ticket is drawn later than that, and the
    fetch that follows it sees the change. So the state with the highest ticket includes it, and that state stays.

A ticket drawn after the fetch proves nothing: A fetches the old state; B fetches the new one, draws 1 and writes; A
draws 2 and writes the old one over it, and no further event puts that right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..batching import Batcher
from ..effects.circuit import Breakers
from ..effects.model import is_async
from ..effects.thread import in_a_thread
from ..errors import ConfigError, FetchFailed, Permanent, Wait
from ..providers.fetching.fetcher import ReadyFetcher
from ..store.ops.tickets import Tickets
from .event import CurrentState, Facts

Present = Callable[[Any], Any]
"""An async or plain function of the event."""


class Currents:
    """How each source's objects are fetched, if that is declared."""

    def __init__(self) -> None:
        self._known: dict[str, Present | ReadyFetcher] = {}

    def add(self, source: str, how: Present | ReadyFetcher) -> None:
        if source in self._known:
            raise ConfigError(
                f"source {source!r}: its current state is declared twice: use one @source.current, or the setting "
                "current"
            )
        self._known[source] = how

    def of(self, source: str) -> Present | ReadyFetcher:
        how = self._known.get(source)
        if how is None:
            raise ConfigError(
                f"source {source!r} does not say what is current: set current, or declare @source.current"
            )
        return how

    def problems(self) -> list[str]:
        """Return what would make each fetch fail."""
        ready = [(source, how) for source, how in self._known.items() if isinstance(how, ReadyFetcher)]
        found = [(source, how.problem()) for source, how in ready]
        return [f"source {source!r}: event.current() will fail: {why}" for source, why in found if why]


class CurrentStates:
    """Draws tickets and fetches, for one worker or dry run."""

    def __init__(self, currents: Currents, tickets: Tickets, breakers: Breakers) -> None:
        self._currents = currents
        self._tickets = tickets
        self._breakers = breakers
        self._draws: Batcher[None, int] = Batcher(self._draw, max_items=256, max_queued=100_000)

    async def __call__(self, event: Facts) -> CurrentState:
        """Draw a ticket, then fetch."""
        how = self._currents.of(event.source)
        if isinstance(how, ReadyFetcher):
            return await self._fetch(how, event)
        ticket = await self._draws.submit(None)
        if is_async(how):
            return CurrentState(await how(event), ticket)
        return CurrentState(await in_a_thread(lambda: how(event), "hookledger-current"), ticket)

    async def _fetch(self, fetcher: ReadyFetcher, event: Facts) -> CurrentState:
        """Fetch, unless the circuit is open; the API's health is what the circuit is about, not its answer."""
        asked = fetcher.prepare(event)
        if not await self._breakers.may_call(fetcher.downstream, fetcher.longest):
            raise self._breakers.rejection(fetcher.downstream)
        ticket = await self._draws.submit(None)
        try:
            found = await fetcher.fetch(asked)
        except FetchFailed as error:
            await self._breakers.failed(fetcher.downstream, str(error))
            raise
        except (Permanent, Wait):
            await self._breakers.came_back(fetcher.downstream)
            raise
        await self._breakers.came_back(fetcher.downstream)
        return CurrentState(found, ticket)

    async def _draw(self, waiting: Sequence[None]) -> Sequence[int]:
        """One commit for all who wait: each fetches after it."""
        return await self._tickets.draw(len(waiting))
