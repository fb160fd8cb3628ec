"""Erases one event, or all that match a filter, each in its own audited transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from msgspec import Struct

from ...errors import WrongState
from ...store.history import EventRow
from ...store.ops.audit import Audit
from ...store.ops.erasure import Erased
from ...store.ops.filters import Filter
from .. import search
from ..context import Context
from ..errors import NotFound

PAGE = 200


class Erasing(Struct):
    """The result of an erasure."""

    events: list[UUID]
    requests: int = 0
    effects: int = 0
    not_allowed: dict[str, str] = {}
    """Events that were not erased, and why."""


async def erase(context: Context, by: Audit, event: EventRow, **options: bool) -> Erased:
    """Erase the content of one finished event: body, arguments, results, tracebacks. WrongState if it has changed.

    Its key and its effects' keys stay; `key_too`: digests replace them. `whole_request`: include the other events of
    the same request. `dry`: only return what would be erased.
    """
    given: dict[str, Any] = {**options}
    return await context.store.erasure.erase(event.id, event.state, event.claim, *by, **given)


async def erase_one(
    context: Context,
    by: Audit,
    reference: str,
    *,
    key_too: bool = False,
    whole_request: bool = False,
    dry: bool = False,
    as_seen: Callable[[EventRow], EventRow] = lambda event: event,
) -> Erasing:
    """Erase one event by id or key; of a pruned event, the rest of its ledger. `as_seen` returns the event as it was
    when this was decided."""
    try:
        known = await search.find(context, reference)
    except NotFound:
        pruned = await search.pruned(context, reference)
        if len(pruned) != 1 or dry:
            raise
        effects = await context.store.erasure.erase_effects(pruned[0].event_id, *by, key_too=key_too)
        return Erasing([pruned[0].event_id], 0, effects)
    seen = as_seen(known.event)
    erased = await erase(context, by, seen, key_too=key_too, whole_request=whole_request, dry=dry)
    return Erasing(list(erased.events), erased.requests, erased.effects)


async def erase_all(
    context: Context, by: Audit, where: Filter, *, count: int | None = None, **options: bool
) -> Erasing:
    """Erase all events that match, page by page; those that cannot be erased stay. `count`: the required number;
    WrongState if it differs. Safe to repeat after an interruption."""
    found = count if count is None else await search.count(context, where)
    if found != count:
        raise WrongState(f"nothing was erased: {found:,} events match, not {count:,}")
    done, seen = Erasing([]), set[UUID]()
    async for row in search.each(context, where, page=PAGE):
        if row.id in seen:
            continue
        try:
            erased = await erase(context, by, row, **options)
        except WrongState as error:
            done.not_allowed[str(row.id)] = str(error)
            continue
        seen.update(erased.events)
        done.events += erased.events
        done.requests += erased.requests
        done.effects += erased.effects
    for ident in seen & set(map(UUID, done.not_allowed)):  # stages, which were erased with their event
        del done.not_allowed[str(ident)]
    return done
