"""Apply the source's rules to recorded duplicates of failing events and to quarantined deliveries: retry or alert."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from ..errors import HookledgerError, WrongState
from ..model import Item, Recorded
from ..states import DeliveryOutcome, State
from .endpoint import Endpoint
from .settings import SourceSettings

log: logging.Logger = logging.getLogger(__name__)

_DUPLICATE = DeliveryOutcome.DUPLICATE  # looking the member up on the class costs a call each time
QUARANTINED = frozenset({DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY})
FAILING = frozenset({State.FAILED, State.RETRYING, State.NEEDS_REVIEW})
MAX_WAITING = 1000
ACTOR = "hookledger"


class RetryStore(Protocol):
    """The store, as far as the rules use it."""

    async def retry(self, event_id: UUID, expected: State, actor: str, reason: str) -> None: ...


class Alerts(Protocol):
    """The store's alerts, as far as the rules use them."""

    async def again(self, event_ids: Sequence[UUID]) -> dict[UUID, int]: ...
    async def alert(self, event_id: UUID, message: str, /) -> bool: ...
    async def warn(self, event_id: UUID, message: str, /) -> bool: ...


class DuplicateRules:
    """Applies the rules in the background. When its queue is full, the next duplicate applies them."""

    def __init__(self, store: RetryStore, alerts: Alerts) -> None:
        self._store = store
        self._alerts = alerts
        self._waiting: asyncio.Queue[tuple[SourceSettings | str, Recorded]] = asyncio.Queue(MAX_WAITING)
        self._warned: set[tuple[UUID, str]] = set()

    def look(self, endpoint: Endpoint, recorded: Sequence[Recorded], items: Sequence[Item] = ()) -> None:
        """Queue what the rules concern. Called after each commit; cheap if no event is failing or quarantined."""
        for item in recorded:
            if item.outcome is _DUPLICATE and item.state in FAILING and not self._waiting.full():
                self._waiting.put_nowait((endpoint.settings, item))
        for item, found in zip(recorded, items, strict=False):
            if found.alert and item.outcome in QUARANTINED and not self._waiting.full():
                self._waiting.put_nowait((found.alert, item))

    async def run(self) -> None:
        while True:
            rule, item = await self._waiting.get()
            try:
                if isinstance(rule, str):
                    await self._warn(rule, item)
                else:
                    await self._apply(rule, item)
            except WrongState:
                pass  # the event has changed since
            except HookledgerError as error:
                log.warning("rules for a duplicate of event %s not applied: %s", item.event_id, error)
            except Exception:
                log.exception("rules for a duplicate of event %s not applied: internal error", item.event_id)
            finally:
                self._waiting.task_done()

    async def settled(self) -> None:
        """Wait until the queue is processed."""
        await self._waiting.join()

    async def _apply(self, settings: SourceSettings, item: Recorded) -> None:
        if settings.redelivery_alert:
            count = (await self._alerts.again([item.event_id])).get(item.event_id, 0)
            if count > settings.redelivery_alert:
                await self._alert(item, f"delivered {count + 1} times, and its handler still fails")
        if item.state is not State.FAILED:
            return
        if settings.on_failed == "retry":
            await self._store.retry(item.event_id, State.FAILED, ACTOR, "the provider redelivered it")
        elif settings.on_failed == "alert":
            await self._alert(item, "redelivered after it became a dead letter")

    async def _warn(self, message: str, item: Recorded) -> None:
        """Warn once per event and reason: an attacker with a captured request can send it any number of times."""
        if (item.event_id, message) in self._warned:
            return
        if len(self._warned) >= MAX_WAITING:
            self._warned.clear()
        if await self._alerts.warn(item.event_id, message):
            log.error("ALERT event %s: %s", item.event_id, message)
        self._warned.add((item.event_id, message))

    async def _alert(self, item: Recorded, message: str) -> None:
        if await self._alerts.alert(item.event_id, message):
            log.error("ALERT event %s: %s", item.event_id, message)
