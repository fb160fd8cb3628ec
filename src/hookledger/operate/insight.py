"""Every reading that a front end needs, in one place."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from ..errors import HookledgerError
from ..ledger import Circuit, Effect
from ..model import EventRow, Health, History, operation_key
from ..states import EffectKind, State
from ..store.protocol import Store


class NotFound(HookledgerError):
    """No event has this id or key."""


class Ambiguous(HookledgerError):
    """Several events begin like this."""


class Summary(Struct, frozen=True):
    """How many of each there are."""

    events: dict[str, int]
    deliveries: dict[str, int]


class Insight:
    """What a person may see."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def events(
        self,
        *,
        source: str | None = None,
        state: State | None = None,
        type: str | None = None,  # noqa: A002 - the word users say
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[EventRow]:
        """The newest first."""
        return await self._store.events(source=source, state=state, type=type, before=before, limit=limit)

    async def event(self, reference: str) -> History:
        """One event in full, by id, the beginning of an id, or key."""
        found = await self._store.find(reference)
        if len(found) > 1:
            raise Ambiguous(f"{reference!r} fits several events: {', '.join(map(str, found))}")
        history = await self._store.history(found[0]) if found else None
        if history is None:
            raise NotFound(f"no event has the id or key {reference!r}")
        return history

    async def effect(self, reference: str, effect: str) -> Effect:
        """One call or outbox entry of an event: by its name, by NAME:KEY, or by its idempotency key."""
        history = await self.event(reference)
        known = [entry.effect for entry in history.effects if entry.effect.kind is not EffectKind.ONCE]
        found = [entry for entry in known if effect in (entry.name, _label(entry), _key(entry))]
        if len(found) > 1:
            raise Ambiguous(f"the event has several: {', '.join(f'{_label(e)} ({_key(e)})' for e in found)}")
        if not found:
            names = ", ".join(map(_label, known)) or "none"
            raise NotFound(f"the event has no effect {effect!r}; it has: {names}")
        return found[0]

    async def circuits(self) -> list[Circuit]:
        """Every downstream that ever failed or was tripped."""
        return await self._store.ledger.circuits()

    async def summary(self) -> Summary:
        events, deliveries = await self._store.counts(), await self._store.delivery_counts()
        return Summary({state.value: events.get(state, 0) for state in State}, deliveries)

    async def health(self) -> Health:
        return await self._store.health()


def _label(effect: Effect) -> str:
    return f"{effect.name}:{effect.key}"


def _key(effect: Effect) -> str:
    return operation_key(effect.identity, effect.generation)
