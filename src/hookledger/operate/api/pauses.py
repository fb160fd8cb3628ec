"""Pauses: which sources and types workers do not process."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ...model import base_source, stage_source
from ...store.ops.pauses import Pause
from .. import pauses
from .call import Asked, Look, Nothing, Reason
from .sources import known_source


class Paused(Struct, frozen=True, forbid_unknown_fields=True):
    """What to pause or resume."""

    reason: Reason
    type: Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^*\x00]*\*?$")] = "*"
    """An event type, or a prefix and `*`; default: the whole source."""
    stage: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None
    """A stage of the source; default: the events themselves."""


class Pauses(Struct, frozen=True):
    pauses: list[Pause]


async def list_pauses(asked: Look) -> Pauses:
    """List what is paused, by whom and why."""
    return Pauses(await pauses.pauses(asked.context))


async def pause_source(asked: Asked[Nothing, Paused]) -> Pauses:
    """Stop processing a source, or some of its types, until it is resumed. Running handlers finish, and deliveries
    are still accepted. Returns all pauses of the source."""
    await pauses.pause(asked.context, asked.by, _meant(asked, known_source(asked)), asked.body.type)
    return await _of_source(asked)


async def resume_source(asked: Asked[Nothing, Paused]) -> Pauses:
    """End a pause of exactly these types; the source need not be configured. Returns its remaining pauses."""
    await pauses.resume(asked.context, asked.by, _meant(asked, asked.path["source"]), asked.body.type)
    return await _of_source(asked)


def _meant(asked: Asked[Nothing, Paused], source: str) -> str:
    return source if asked.body.stage is None else stage_source(source, asked.body.stage)


async def _of_source(asked: Asked[Nothing, Paused]) -> Pauses:
    found = await pauses.pauses(asked.context)
    return Pauses([one for one in found if base_source(one.source) == asked.path["source"]])
