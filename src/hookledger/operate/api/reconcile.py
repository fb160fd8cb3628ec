"""Compare with providers' logs, and repair single objects."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...errors import ConfigError
from ...store.history import EventRow
from ...store.ops.filters import EARLIEST, LATEST, Moment
from ...store.ops.reconciling import Reconciliation
from .. import search
from ..reconcile import repair
from ..reconcile.compare import Report
from ..reconcile.reconcile import compare, reconcile, reconciliations, window_of
from .call import Asked, Look, Nothing, Reason, Why
from .sources import known_source


class ToCompare(Struct, frozen=True, forbid_unknown_fields=True):
    """The window of a comparison."""

    reason: Reason
    since: Moment | None = None
    """Default: as far back as the source's settings say."""
    until: Moment | None = None
    """Default: now."""
    dry_run: bool = False
    """Compare only: import nothing, request nothing."""
    resend: bool = False
    """Ask the provider to redeliver missing events, if it can."""

    def __post_init__(self) -> None:
        for moment in (self.since, self.until):
            if moment is not None and not EARLIEST <= moment < LATEST:
                raise ConfigError("since and until must be between the years 1970 and 9000")


class ToRepair(Struct, frozen=True, forbid_unknown_fields=True):
    """Which object to repair."""

    object_id: Annotated[str, Meta(min_length=1, max_length=255)]
    """The provider's id of the object; printable characters."""
    reason: Reason


class Reconciliations(Struct, frozen=True):
    reconciliations: list[Reconciliation]


async def list_reconciliations(asked: Look) -> Reconciliations:
    """Show the last comparison of each source with its provider's log. A viewer does not get the text of a problem,
    which may quote the provider's answer."""
    found = await reconciliations(asked.context)
    if not asked.sees_all:
        found = [msgspec.structs.replace(one, problem=one.problem and "for operators") for one in found]
    return Reconciliations(found)


async def reconcile_source(asked: Asked[Nothing, ToCompare]) -> Report:
    """Compare a source with its provider's log, and import missing events. Runs within the request for at most five
    minutes: events imported until then stay, and a second call finds them. For more, use a shorter window, a daily
    comparison (`[sources.NAME.reconcile] at`) or the command line.

    `problem` says why it ended early; differences are no error.
    """
    source, given = known_source(asked), asked.body
    window = window_of(asked.context, source, given.since, given.until)
    if given.dry_run:
        return await compare(asked.context, source, window, resend=given.resend)
    return await reconcile(asked.context, asked.by, source, window, resend=given.resend)


async def repair_event(asked: Asked[Nothing, Why]) -> EventRow:
    """Have a worker run the source's repair handler for the object of an event; returns the event made for it. 409
    while an earlier repair of the object is pending."""
    about = (await search.find(asked.context, asked.path["reference"])).event
    return (await repair.repair_event(asked.context, asked.by, about)).event


async def repair_object(asked: Asked[Nothing, ToRepair]) -> EventRow:
    """Have a worker run the source's repair handler for one object, by its id."""
    return (await repair.repair(asked.context, asked.by, known_source(asked), asked.body.object_id)).event
