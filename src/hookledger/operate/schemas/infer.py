"""Drafts a schema from stored events."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...errors import WrongState
from ...schemas.compiled import Schema
from ...schemas.shape import Draft
from ..context import Context
from .stored import Progress, contents, untold


class Drafted(Struct, frozen=True):
    document: dict[str, Any]
    events: int
    """It was drafted from."""
    unreadable: int
    """Events whose content is erased or unreadable."""


async def infer(context: Context, source: str, kind: str, *, last: int, progress: Progress = untold) -> Drafted:
    """Return a schema that fits the newest `last` events of a type. WrongState if none has content."""
    context.sources.endpoint(source)  # it reads their contents
    draft, unreadable = Draft(), 0
    async for stored in contents(context, source, kind, last=last):
        if stored.raw is None:
            unreadable += 1
        else:
            draft.add(stored.content)
        progress(draft.contents + unreadable)
    if not draft.contents:
        raise WrongState(
            f"no event of {source!r} with the type {kind!r} has content: `hookledger events --source {source}` shows "
            "its types"
        )
    document = draft.document(f"{kind} of {source}")
    Schema("draft", document)
    return Drafted(document, draft.contents, unreadable)
