"""What is kept: retention and erasure. All but the look ahead is for admins."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...filters import EVERYTHING, Filter
from ...model import EventRow
from ...store.ops.pruning import Pruned
from ..erasing import Erasing, erase_all, erase_one
from ..insight import NotFound
from .call import Asked, Count, Nothing, Reason, Text
from .decide import Expected

ROUND = 60.0
"""Seconds that a round of retention is given."""


class DueQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Text | None = None


class ToPrune(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Reason
    source: Text | None = None
    """Only of this source."""
    anew: bool = False
    """Begin with the oldest, not where the last round ended."""


class PrunedView(Struct, frozen=True):
    """What went, or would."""

    looked_at: int
    events: int
    payloads: int
    history: int
    deliveries: int
    finished: bool
    """False when a minute was not enough: ask again, or leave the rest to the workers."""


class ToErase(Struct, frozen=True, forbid_unknown_fields=True):
    """Which event is to be erased, as it was when that was decided."""

    reason: Reason
    expected: Expected | None = None
    """Needed unless the event was pruned: of that one, what the ledger still has is erased."""
    key_too: bool = False
    """Show digests in place of event and effect keys, too."""
    whole_request: bool = False
    """With the other events that came in the same request."""
    dry_run: bool = False
    """Only say what would be erased, or what refuses it."""


class ToEraseAll(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events are to be erased."""

    where: Filter
    """Not empty."""
    count: Count
    """How many events you mean: refused if there are more or fewer."""
    reason: Reason
    key_too: bool = False
    whole_request: bool = False
    dry_run: bool = False


# ── retention ──


async def foresee_prune(asked: Asked[DueQuery, Nothing]) -> PrunedView:
    """What retention would take away now; nothing is changed. Refused while somebody prunes."""
    return await _round(asked, "", source=asked.query.source, anew=True, dry=True)


async def prune(asked: Asked[Nothing, ToPrune]) -> PrunedView:
    """Take away what retention says is over, for a minute at most. Workers do it by themselves; nothing goes unless
    the settings name it. Refused while somebody prunes."""
    given = asked.body
    return await _round(asked, given.reason, source=given.source, anew=given.anew, dry=False)


async def _round(asked: Asked[Any, Any], reason: str, *, source: str | None, anew: bool, dry: bool) -> PrunedView:
    if source is not None and source not in asked.insight.receiving.sources():
        raise NotFound(f"there is no source {source!r}")
    done, finished = Pruned(), True

    def told(step: Pruned) -> None:
        nonlocal done
        done = step

    try:
        async with asyncio.timeout(ROUND):
            await asked.services.prune(asked.caller.name, reason, source=source, anew=anew, dry=dry, told=told)
    except TimeoutError:
        finished = False
    return PrunedView(**msgspec.structs.asdict(done), finished=finished)


# ── erasure ──


async def erase_event(asked: Asked[Nothing, ToErase]) -> Erasing:
    """Forget what a finished event said: bytes, headers, effect arguments, results, tracebacks. Keys and digests
    stay, so that nothing is accepted or done again. It cannot be undone."""
    given = asked.body

    def as_seen(event: EventRow) -> EventRow:
        if given.expected is None:
            raise ConfigError("name in `expected` the state and the claim of the event that you saw")
        return msgspec.structs.replace(event, state=given.expected.state, claim=given.expected.claim)

    return await erase_one(
        asked.insight,
        asked.actions,
        asked.path["reference"],
        given.reason,
        key_too=given.key_too,
        whole_request=given.whole_request,
        dry=given.dry_run,
        as_seen=as_seen,
    )


async def erase_events(asked: Asked[Nothing, ToEraseAll]) -> Erasing:
    """The same for all events that a filter finds, each in a transaction of its own; `refused` says which stayed, and
    why. It cannot be undone."""
    given = asked.body
    if given.where == EVERYTHING:
        raise ConfigError("a filter that finds everything erases nothing: say which events you mean")
    options = {"key_too": given.key_too, "whole_request": given.whole_request, "dry": given.dry_run}
    return await erase_all(asked.insight, asked.actions, given.where, given.reason, count=given.count, **options)
