"""Before the handler: whether an event's content fits its schema, and its handler's `body=` type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..errors import SchemaBreak
from ..model import REPAIR_KEY, Claimed, base_source
from ..schemas.breaks import in_words
from ..schemas.compiled import is_plain
from ..schemas.folder import Schemas
from ..states import KeyOrigin
from .route import Handler

Read = Callable[[Claimed], Any]


class Checked(Struct, frozen=True):
    """An event's content that was decoded to be checked, so that the handler need not decode it again."""

    json: Any
    content: Any
    """As the handler's type."""


class Checks:
    """`read` decodes an event's content."""

    def __init__(self, read: Read, schemas: Schemas) -> None:
        self.read = read
        self._schemas = schemas

    def check(self, handler: Handler, claimed: Claimed) -> Checked | None:
        """Return the content if it had to be decoded; raise SchemaBreak if it does not fit, UnreadableError if there
        is none."""
        schema = None
        if self._schemas and handler.reads_content and not _is_repair(claimed):
            schema = self._schemas.find(base_source(claimed.source), claimed.type, claimed.version or None)
        if schema is None and handler.body is None:
            return None
        json = self.read(claimed)
        if schema is not None and (breaks := schema.check(json, plain=is_plain(claimed.body))):
            reason, details = in_words(schema.name, breaks)
            raise SchemaBreak(reason, details=details)
        return Checked(json, json if handler.body is None else handler.body(json))


def _is_repair(claimed: Claimed) -> bool:
    """Whether it is no delivery: an operator asked for it, and its content is ours."""
    return claimed.key_origin is KeyOrigin.ARRIVAL and claimed.key.startswith(REPAIR_KEY)
