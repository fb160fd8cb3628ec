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


async def infer(
    context: Context, source: str, kind: str, *, last: int, version: str | None = None, progress: Progress = untold
) -> Drafted:
    """Return a schema that fits the newest `last` events of a type, or of one version of it. WrongState if none has
    content."""
    context.sources.endpoint(source)  # it reads their contents
    draft, unreadable = Draft(), 0
    async for stored in contents(context, source, kind, last=last, version=version):
        if stored.raw is None:
            unreadable += 1
        else:
            draft.add(stored.content)
        progress(draft.contents + unreadable)
    if not draft.contents:
        of = "" if version is None else f" and the version {version!r}"
        raise WrongState(
            f"no event of {source!r} with the type {kind!r}{of} has content: `hookledger events --source {source}` "
            "shows its types"
        )
    document = draft.document(f"{kind} of {source}" if version is None else f"{kind} of {source} in {version}")
    Schema("draft", document)
    return Drafted(document, draft.contents, unreadable)
