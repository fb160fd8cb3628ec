"""Check the content of events against their schemas at intake, where a source asks for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import ContentRefused
from ..model import Item
from ..schemas.breaks import in_words
from ..schemas.compiled import is_plain
from .endpoint import Endpoint

MAX_REASON = 500


def with_breaks(endpoint: Endpoint, items: list[Item], contents: Sequence[object], raw: bytes) -> list[Item]:
    """Return the items; one whose content breaks its schema is invalid, which makes it a dead letter.

    Raises ContentRefused if the source refuses such content and no event of the request fits: were one refused with
    others, the provider would send all of them again.
    """
    if endpoint.schemas is None:
        return items
    broken, plain = False, is_plain(raw)
    for place, item in enumerate(items):
        if item.invalid is None and item.skip is None and (reason := _break(endpoint, item, contents[place], plain)):
            # Its identity stays that of the event: the same delivery again is a duplicate.
            items[place] = msgspec.structs.replace(item, invalid=reason, review=None)
            broken = True
    if endpoint.settings.schema_break == "refuse" and items and all(item.invalid is not None for item in items):
        raise ContentRefused("schema_break" if broken else "content_unreadable")
    return items


def _break(endpoint: Endpoint, item: Item, content: object, plain: bool) -> str | None:
    assert endpoint.schemas is not None
    schema = endpoint.schemas.find(endpoint.name, item.type, item.version or None)
    breaks = schema.check(content, plain=plain) if schema is not None else []
    return in_words(schema.name, breaks)[0][:MAX_REASON] if schema is not None and breaks else None
