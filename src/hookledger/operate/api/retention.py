"""Retention and erasure. Everything but the preview needs the role admin."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...store.history import EventRow
from ...store.ops.audit import Audit
from ...store.ops.filters import EVERYTHING, Filter
from ...store.ops.pruning import Pruned
from ..errors import NotFound
from ..retention.erase import Erasing, erase_all, erase_one
from ..retention.prune import pruner
from .call import Asked, Count, Nothing, Reason, Text
from .decide import Expected

ROUND = 60.0
"""Time limit of one pruning round, in seconds."""


class DueQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None


class ToPrune(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Reason
    source: Text | None = None
    """Only of this source."""
    from_start: bool = False
    """Start with the oldest, not where the last round ended."""


class PrunedView(Struct, frozen=True):
    """What was deleted, or would be."""

    looked_at: int
    events: int
    payloads: int
    history: int
    deliveries: int
    finished: bool
    """False if a minute was not enough: call again, or leave the rest to the workers."""


class ToErase(Struct, frozen=True, forbid_unknown_fields=True):
    """Which event to erase, as you saw it when you decided."""

    reason: Reason
    expected: Expected | None = None
    """Required unless the event was pruned; then the rest of its ledger is erased."""
    key_too: bool = False
    """Replace event and effect keys by digests too."""
    whole_request: bool = False
    """Include the other events of the same request."""
    dry_run: bool = False
    """Only return what would be erased, or why it is not allowed."""


class ToEraseAll(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events to erase."""

    where: Filter
    """At least one field is required."""
    count: Count
    """Number of events you mean: 409 if it differs."""
    reason: Reason
    key_too: bool = False
    whole_request: bool = False
    dry_run: bool = False


# ── retention ──


async def preview_prune(asked: Asked[DueQuery, Nothing]) -> PrunedView:
    """Show what retention would delete now; nothing is changed. 409 while pruning runs."""
    return await _round(asked, Audit(asked.caller.name, ""), source=asked.query.source, from_start=True, dry=True)


async def prune(asked: Asked[Nothing, ToPrune]) -> PrunedView:
    """Delete data past its retention period, for at most a minute. Workers prune periodically; nothing is deleted
    unless the settings set a period. 409 while pruning runs."""
    given = asked.body
    return await _round(asked, asked.by, source=given.source, from_start=given.from_start, dry=False)


async def _round(asked: Asked[Any, Any], by: Audit, *, source: str | None, from_start: bool, dry: bool) -> PrunedView:
    if source is not None and source not in asked.context.sources.names:
        raise NotFound(f"unknown source {source!r}: GET /api/v1/sources lists the configured ones")
    done, finished = Pruned(), True

    def told(step: Pruned) -> None:
        nonlocal done
        done = step

    try:
        async with asyncio.timeout(ROUND):
            await pruner(asked.context).round(by, source=source, from_start=from_start, dry=dry, progress=told)
    except TimeoutError:
        finished = False
    return PrunedView(**msgspec.structs.asdict(done), finished=finished)


# ── erasure ──


async def erase_event(asked: Asked[Nothing, ToErase]) -> Erasing:
    """Erase the content of a finished event: body, headers, effect arguments, results and tracebacks. Keys and
    digests stay, so that no event is accepted and no effect performed again. Cannot be undone."""
    given = asked.body

    def as_seen(event: EventRow) -> EventRow:
        if given.expected is None:
            raise ConfigError("expected is required: give the event's state and claim as you saw them")
        return msgspec.structs.replace(event, state=given.expected.state, claim=given.expected.claim)

    return await erase_one(
        asked.context,
        asked.by,
        asked.path["reference"],
        key_too=given.key_too,
        whole_request=given.whole_request,
        dry=given.dry_run,
        as_seen=as_seen,
    )


async def erase_events(asked: Asked[Nothing, ToEraseAll]) -> Erasing:
    """Erase all events that match a filter, each in its own transaction; `not_allowed` lists the events that were not
    erased, and why. Cannot be undone."""
    given = asked.body
    if given.where == EVERYTHING:
        raise ConfigError("the filter is empty: select the events to erase")
    options = {"key_too": given.key_too, "whole_request": given.whole_request, "dry": given.dry_run}
    return await erase_all(asked.context, asked.by, given.where, count=given.count, **options)
