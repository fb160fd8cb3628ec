"""Erasing one event, or all that a filter finds, each in an audited transaction of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from msgspec import Struct

from ..errors import WrongState
from ..filters import Filter
from ..model import EventRow
from .actions import Actions
from .insight import Insight, NotFound

PAGE = 200


class Erasing(Struct):
    """What came of it."""

    events: list[UUID]
    requests: int = 0
    effects: int = 0
    refused: dict[str, str] = {}
    """Events that stayed as they were, and why."""


async def erase_one(
    insight: Insight,
    actions: Actions,
    reference: str,
    reason: str,
    *,
    key_too: bool = False,
    whole_request: bool = False,
    dry: bool = False,
    as_seen: Callable[[EventRow], EventRow] = lambda event: event,
) -> Erasing:
    """By id or key. Of an event that was pruned, what the ledger still has. `as_seen` makes of the event what it was
    when this was decided."""
    try:
        known = await insight.event(reference)
    except NotFound:
        pruned = await insight.pruned(reference)
        if len(pruned) != 1 or dry:
            raise
        return Erasing([pruned[0].event_id], 0, await actions.erase_pruned(pruned[0], reason, key_too=key_too))
    erased = await actions.erase(as_seen(known.event), reason, key_too=key_too, whole_request=whole_request, dry=dry)
    return Erasing(list(erased.events), erased.requests, erased.effects)


async def erase_all(
    insight: Insight, actions: Actions, where: Filter, reason: str, *, count: int | None = None, **options: Any
) -> Erasing:
    """Page by page; those that refuse stay. `count`: how many are meant; WrongState when there are more or fewer. An
    erasure that broke off is simply begun again."""
    found = count if count is None else await insight.count(where)
    if found != count:
        raise WrongState(f"the filter finds {found:,} events, not {count:,}")
    done, seen = Erasing([]), set[UUID]()
    before: UUID | None = None
    while True:
        page: list[EventRow] = await insight.events(where, before=before, limit=PAGE)
        for row in page:
            if row.id not in seen:
                seen.update(await _erase(actions, row, reason, options, done))
        if len(page) < PAGE:
            return done
        before = page[-1].id


async def _erase(
    actions: Actions, row: EventRow, reason: str, options: dict[str, Any], done: Erasing
) -> tuple[UUID, ...]:
    try:
        erased = await actions.erase(row, reason, **options)
    except WrongState as refused:
        done.refused[str(row.id)] = str(refused)
        return ()
    done.events += erased.events
    done.requests += erased.requests
    done.effects += erased.effects
    return erased.events
