"""Replays one stage of an event; adds it to an event that was processed before the application had the stage."""

from __future__ import annotations

from msgspec.structs import replace as with_source

from ...errors import ConfigError
from ...model import Kind, check_stage_name, stage_source
from ...store.history import EventRow, History
from ...store.ops.audit import Audit
from .. import search
from ..context import Application, Context
from .replay import replay


async def replay_stage(context: Context, by: Audit, event: EventRow, stage: str) -> History:
    """Process one stage of an event again as a new run, or for the first time if the processed event lacks it.

    `event`: as seen when this was decided. Raises ConfigError if the application is here and has no such stage,
    WrongState if the event has changed, or as `replay` does.
    """
    for known in (await search.find(context, str(event.id))).stages:
        if known.stage == stage:
            return await replay(context, by, known)
    return await add_stage(context, by, event, stage)


async def add_stage(context: Context, by: Audit, event: EventRow, stage: str) -> History:
    """Add a stage to a processed event that lacks it. Raises as `replay_stage` does, and WrongState if it has it."""
    check_stage(context.application, Kind(event.source, event.type, event.version), stage)
    ident = await context.store.stages.add(event.id, event.claim, stage, *by)
    return await search.find(context, str(ident))


def check_stage(application: Application, kind: Kind, stage: str, *, any_version: bool = False) -> None:
    """Raise ConfigError if no stage can have this name, or an application that is loaded has no handler for it.
    `any_version`: one for another version of the type will do."""
    check_stage_name(stage)
    wanted = with_source(kind, source=stage_source(kind.source, stage))
    patterns = application.routes.handles()
    if application.loaded and not any(
        one.takes_type(wanted) if any_version else one.takes(wanted) for one in patterns
    ):
        raise ConfigError(
            f"no handler of this application handles {kind.label} of {kind.source!r} in stage {stage!r}"
        )
