"""Pauses: what workers leave alone for now."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ...store.ops.pauses import Pause
from .call import Asked, Look, Nothing, Reason
from .sources import known_source


class Paused(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be paused or resumed."""

    reason: Reason
    type: Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^*\x00]*\*?$")] = "*"
    """An event type, or the beginning of some and `*`; all of the source unless it is given."""


class Pauses(Struct, frozen=True):
    pauses: list[Pause]


async def list_pauses(asked: Look) -> Pauses:
    """What is paused, by whom and why."""
    return Pauses(await asked.insight.pauses())


async def pause_source(asked: Asked[Nothing, Paused]) -> Pauses:
    """Workers claim nothing of a source, or of some of its types, until it is resumed. What is being handled
    finishes, and deliveries are accepted as ever. Answers with all pauses of the source."""
    await asked.actions.pause(known_source(asked), asked.body.reason, asked.body.type)
    return await _of_source(asked)


async def resume_source(asked: Asked[Nothing, Paused]) -> Pauses:
    """Take back a pause of exactly these types, also of a source that is not configured any more. Answers with what
    is still paused of the source."""
    await asked.actions.resume(asked.path["source"], asked.body.reason, asked.body.type)
    return await _of_source(asked)


async def _of_source(asked: Asked[Nothing, Paused]) -> Pauses:
    found = await asked.insight.pauses()
    return Pauses([one for one in found if one.source == asked.path["source"]])
