"""What a duplicate of troubled work, or a quarantined delivery, brings about once it is recorded and answered: an
action of its own, by rule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from ..errors import HookledgerError, WrongState
from ..model import Item, Recorded
from ..states import DeliveryOutcome, State
from .endpoint import Endpoint, Rules

log = logging.getLogger(__name__)

_DUPLICATE = DeliveryOutcome.DUPLICATE  # asked of the class each time, a member costs a call
QUARANTINED = frozenset({DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY})
TROUBLED = frozenset({State.FAILED, State.RETRYING, State.NEEDS_REVIEW})
MAX_WAITING = 1000
ACTOR = "hookledger"


class Acts(Protocol):
    """What is needed of a store."""

    async def retry(self, event_id: UUID, expected: State, actor: str, reason: str) -> None: ...


class Marks(Protocol):
    """What is needed of a store's cases."""

    async def again(self, event_ids: Sequence[UUID]) -> dict[UUID, int]: ...
    async def alert(self, event_id: UUID, words: str) -> bool: ...
    async def warn(self, event_id: UUID, words: str) -> bool: ...


class Aftercare:
    """Bounded: when more wait than it can look at, the rest is left to the next duplicate."""

    def __init__(self, store: Acts, cases: Marks) -> None:
        self._store = store
        self._cases = cases
        self._waiting: asyncio.Queue[tuple[Rules | str, Recorded]] = asyncio.Queue(MAX_WAITING)
        self._warned: set[tuple[UUID, str]] = set()

    def look(self, endpoint: Endpoint, recorded: Sequence[Recorded], items: Sequence[Item] = ()) -> None:
        """Called after each commit; costs next to nothing unless something is in trouble or quarantined."""
        for item in recorded:
            if item.outcome is _DUPLICATE and item.state in TROUBLED and not self._waiting.full():
                self._waiting.put_nowait((endpoint.rules, item))
        for item, found in zip(recorded, items, strict=False):
            if found.alert and item.outcome in QUARANTINED and not self._waiting.full():
                self._waiting.put_nowait((found.alert, item))

    async def run(self) -> None:
        while True:
            rules, item = await self._waiting.get()
            try:
                if isinstance(rules, str):
                    await self._warn(rules, item)
                else:
                    await self._apply(rules, item)
            except WrongState:
                pass  # somebody was there first
            except HookledgerError as error:
                log.warning("what a duplicate of event %s should bring about is left: %s", item.event_id, error)
            except Exception:
                log.exception("what a duplicate of event %s should bring about is left: a defect", item.event_id)
            finally:
                self._waiting.task_done()

    async def settled(self) -> None:
        """Until all that waited was looked at."""
        await self._waiting.join()

    async def _apply(self, rules: Rules, item: Recorded) -> None:
        if rules.bounces:
            count = (await self._cases.again([item.event_id])).get(item.event_id, 0)
            if count > rules.bounces:
                await self._alert(item, f"delivered {count + 1} times, and its handler still fails")
        if item.state is not State.FAILED:
            return
        if rules.on_failed == "retry":
            await self._store.retry(item.event_id, State.FAILED, ACTOR, "the provider delivered it again")
        elif rules.on_failed == "alert":
            await self._alert(item, "delivered again after it went to the dead letter")

    async def _warn(self, words: str, item: Recorded) -> None:
        """Once for each event and reason: whoever sends a captured request again chooses how often."""
        if (item.event_id, words) in self._warned:
            return
        if len(self._warned) >= MAX_WAITING:
            self._warned.clear()
        if await self._cases.warn(item.event_id, words):
            log.error("ALERT event %s: %s", item.event_id, words)
        self._warned.add((item.event_id, words))

    async def _alert(self, item: Recorded, words: str) -> None:
        if await self._cases.alert(item.event_id, words):
            log.error("ALERT event %s: %s", item.event_id, words)
