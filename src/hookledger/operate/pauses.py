"""Pauses: which sources and types workers do not process."""

from __future__ import annotations

from ..errors import ConfigError
from ..model import base_source, check_stage_name
from ..store.ops.audit import Audit
from ..store.ops.pauses import Pause
from .audit import check_text
from .context import Context
from .workers import handled_by, live_workers


async def pauses(context: Context) -> list[Pause]:
    """Return what is paused, by whom and why."""
    return await context.store.pauses.pauses()


async def pause(context: Context, by: Audit, source: str, pattern: str = "*") -> Pause:
    """Stop workers from claiming events of a source, or of some of its types, until it is resumed. Running handlers
    finish, deliveries are accepted, and the outbox continues. SOURCE/STAGE is a stage, which a pause of its source
    leaves alone."""
    known = context.sources.names
    if known and base_source(source) not in known:
        raise ConfigError(f"unknown source {source!r}; configured: {', '.join(sorted(known))}")
    if "/" in source:
        check_stage_name(source.partition("/")[2])
    return await context.store.pauses.pause(check_text(source, "source"), _check_pattern(pattern), *by)


async def running_stages(context: Context, source: str) -> list[str]:
    """Return the stages of a source that are not paused, as SOURCE/STAGE: those that workers handle, or that wait."""
    handled = handled_by(await live_workers(context)) + context.application.routes.handles()
    known = {one.source for one in handled} | {one.kind.source for one in await context.store.waiting()}
    paused = {one.source for one in await pauses(context) if one.pattern == "*"}
    return sorted(name for name in known - paused if base_source(name) == source != name)


async def resume(context: Context, by: Audit, source: str, pattern: str = "*") -> None:
    """End a pause of exactly these types; the source need not be configured."""
    await context.store.pauses.resume(check_text(source, "source"), _check_pattern(pattern), *by)


def _check_pattern(pattern: str) -> str:
    if not pattern or "*" in pattern[:-1]:
        raise ConfigError(f"{pattern!r} is not an event type: * is allowed only at the end")
    return check_text(pattern, "event type")
