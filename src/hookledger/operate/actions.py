"""What a person may do: each action one audited transition, refused when the event changed meanwhile."""

from __future__ import annotations

from ..errors import ConfigError, WrongState
from ..model import EventRow, History
from ..states import BY_NAME
from ..store.protocol import Store
from .insight import Insight


class Actions:
    """`actor` is who asks, for the audit."""

    def __init__(self, store: Store, actor: str) -> None:
        if not actor.strip():
            raise ConfigError("an action names who asked for it")
        self._store = store
        self._insight = Insight(store)
        self._actor = actor

    async def retry(self, event: EventRow, reason: str) -> History:
        """Send a failed, retrying or reviewed event round again now, with a fresh budget."""
        if not reason.strip():
            raise ConfigError("an action says why")
        allowed = BY_NAME["retry"].sources
        if event.state not in allowed:
            names = ", ".join(sorted(state.value for state in allowed))
            raise WrongState(f"event {event.id} is {event.state}: only {names} can be retried")
        await self._store.retry(event.id, event.state, self._actor, reason)
        return await self._insight.event(str(event.id))
