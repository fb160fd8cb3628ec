"""Comparing with providers' logs, and putting one object right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...errors import ConfigError
from ...filters import EARLIEST, LATEST, Moment
from ...model import EventRow
from ...store.ops.reconciling import Reconciliation
from ..reconcile import Report, Window
from .call import Asked, Look, Nothing, Reason
from .circuits import Why
from .sources import known_source


class ToCompare(Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider is asked about."""

    reason: Reason
    since: Moment | None = None
    """As far back as the source says unless it is given."""
    until: Moment | None = None
    """Now unless it is given."""
    dry_run: bool = False
    """Only compare: take in nothing, ask for nothing."""
    resend: bool = False
    """Have the provider deliver what is missing again, where it can."""

    def __post_init__(self) -> None:
        for moment in (self.since, self.until):
            if moment is not None and not EARLIEST <= moment < LATEST:
                raise ConfigError("since and until are between 1970 and 9000")


class ToRepair(Struct, frozen=True, forbid_unknown_fields=True):
    """Which object is to be put right."""

    object_id: Annotated[str, Meta(min_length=1, max_length=255)]
    """As the provider names it; printable characters."""
    reason: Reason


class Reconciliations(Struct, frozen=True):
    reconciliations: list[Reconciliation]


async def list_reconciliations(asked: Look) -> Reconciliations:
    """The last comparison of each source with its provider's log. A viewer sees that there was a problem, not which:
    it may quote an answer of the provider's."""
    found = await asked.insight.reconciliations()
    if not asked.sees_all:
        found = [msgspec.structs.replace(one, problem=one.problem and "for operators") for one in found]
    return Reconciliations(found)


async def reconcile_source(asked: Asked[Nothing, ToCompare]) -> Report:
    """Compare a source with its provider's log, and take in what is missing here. It is done while the caller waits,
    for at most five minutes: what was taken in until then stays, and a second call finds it known. For more, give a
    shorter window, let it be done every day (`[sources.NAME.reconcile] at`), or use the command line.

    `problem` says why it ended early; what differs is an answer, and no error."""
    source, given = known_source(asked), asked.body
    window = None
    if given.since is not None or given.until is not None:
        end = given.until or datetime.now(UTC)
        back = timedelta(seconds=asked.insight.receiving.plan(source).look_back)
        window = Window(given.since or max(EARLIEST, end - back), end)
    return await asked.actions.reconcile(source, window, given.reason, dry_run=given.dry_run, resend=given.resend)


async def repair_event(asked: Asked[Nothing, Why]) -> EventRow:
    """Have a worker run the source's repair handler for the object that an event is about: an event of its own, which
    is the answer. Refused while an earlier repair of the object is still to come."""
    about = (await asked.insight.event(asked.path["reference"])).event
    return (await asked.actions.repair_event(about, asked.body.reason)).event


async def repair_object(asked: Asked[Nothing, ToRepair]) -> EventRow:
    """The same for an object that is named."""
    return (await asked.actions.repair(known_source(asked), asked.body.object_id, asked.body.reason)).event
