"""From an event to the request for its object.

A delivery may be hostile even if it is authentic: strangers choose some of its names. So the host is configured, an
event's values are single segments of a path that the contract has, and a value that could be more than that is
rejected.
"""

from __future__ import annotations

import re
from typing import Any, Protocol
from urllib.parse import quote

from msgspec import Struct

from ...errors import Permanent
from ...ids import CUT
from ...model import REPAIR
from ..fields import ABSENT, Body, Field, Header, field, inside
from .facts import Fetcher

MAX_LENGTH = 255
"""Characters of an id."""
UNSAFE = frozenset("/\\?#%;\ufffd")
"""What separates the parts of a URL, for us or for a proxy that decodes it once more; and what the intake wrote for a
character that it could not keep."""
_NAMED = re.compile(r"\{([^{}]+)\}")
_DELETED = re.compile(r"(?:.*[./])?(?:deleted?|\w*deletion|destroy(?:ed)?)", re.IGNORECASE | re.DOTALL)
_HEADER = re.compile(r"[A-Za-z0-9_.:/-]{1,255}")


class Subject(Protocol):
    """An event, as handlers see it."""

    @property
    def type(self) -> str: ...
    @property
    def object_id(self) -> str | None: ...
    @property
    def provider_id(self) -> str | None: ...
    @property
    def json(self) -> Any: ...
    @property
    def headers(self) -> list[tuple[str, str]]: ...


class Request(Struct, frozen=True):
    """What to ask the provider's API."""

    kind: str
    path: str
    headers: dict[str, str]
    inside: str | None
    """The field of the response that holds the object."""
    deleted: bool
    """Whether the event itself says that the object was deleted."""
    witness: str | None
    """The path that proves a 404; None if there is none for this event."""
    says: dict[str, object]
    """Fields of its response, with the values that they must have."""


def request(facts: Fetcher, event: Subject, title: str, version: str) -> Request:
    """Return the request for an event's object. Raises Permanent for an event that no path fits."""
    about = _About(facts, event, version)
    kind = _kind(facts, about)
    if kind is None:
        raise Permanent(f"{about.words}: no path of {title}'s API is known for it; declare @source.current instead")
    try:
        witness = about.fill(facts.witness) if facts.witness and kind not in facts.unsure else None
    except Permanent:
        witness = None
    return Request(
        kind=kind,
        path=about.fill(facts.path_of[kind]),
        headers=_headers(facts, about),
        inside=dict(facts.inside).get(kind),
        deleted=_DELETED.fullmatch(about.type) is not None,
        witness=witness,
        says={name: value for name, given in facts.says if (value := about.value(given)) is not None},
    )


class _About:
    """The values of an event that a request may have. A repair has an object's id, and perhaps a type."""

    def __init__(self, facts: Fetcher, event: Subject, version: str) -> None:
        self._event = event
        self._version = version
        self.content: Any = event.json
        self.type = event.type
        self.repair = event.type == REPAIR
        if self.repair:
            given = self.content.get("type")
            self.type, self.content = (given if isinstance(given, str) else ""), {}
        self.object_id = event.object_id or ""
        beginnings = sorted((start for start, _ in facts.ids if self.object_id.startswith(start)), key=len)
        self.beginning = beginnings[-1] if beginnings else None
        self._id = self.object_id.removeprefix(self.beginning or "") if facts.short_ids else self.object_id

    @property
    def words(self) -> str:
        named = f"a repair of {self.object_id[:80]!r}" if self.repair else f"an event of type {self.type[:80]!r}"
        return f"{named}, {self.type[:80]!r}" if self.repair and self.type else named

    def value(self, given: Field) -> object:
        """Return a field of the event; None if it is absent."""
        if isinstance(given, Body):
            found = inside(given, self.content)
            return None if found is ABSENT else found
        if isinstance(given, Header) and not self.repair:
            name = given.name.decode("ascii")
            return next((value for known, value in self._event.headers if known == name), None)
        return None

    def fill(self, path: str) -> str:
        """Return a contract's path with the event's values in it."""
        return _NAMED.sub(lambda match: self._part(match[1]), path)

    def _part(self, name: str) -> str:
        match name:
            case "version":
                return self._version
            case "id":
                return self._segment(self._id, "object id")
            case "event_id":
                return self._segment(None if self.repair else self._event.provider_id, "event id")
        return self._segment(self.value(field(name)), name)

    def _segment(self, value: object, name: str) -> str:
        """Return a value as one segment of a path."""
        if value is None or value == "":
            why = ": a repair has only the object's id; declare @source.current instead" if self.repair else ""
            raise Permanent(f"{self.words} has no {name}, which the path of its object needs{why}")
        if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
            value = str(value)
        if not isinstance(value, str) or not is_segment(value):
            raise Permanent(f"{self.words}: {name} cannot be a part of a URL: {_shown(value)}")
        return quote(value, safe="")


def is_segment(value: str) -> bool:
    """Whether a text, percent-encoded, is one segment of a path and nothing else."""
    if not value.strip(".") or len(value) > MAX_LENGTH or CUT in value:
        return False
    return value.isprintable() and UNSAFE.isdisjoint(value)


def _kind(facts: Fetcher, about: _About) -> str | None:
    """Return the kind of object, by the event's own word, or by the beginning of its id."""
    named = [value for given in facts.kind if isinstance(value := about.value(given), str)]
    if not facts.kind and about.type:
        named = [about.type, re.sub(r"[./][^./]*$", "", about.type)]
    found = next((name for name in named if name in facts.path_of), None)
    if found is None and not named and about.beginning is not None:
        return dict(facts.ids)[about.beginning]
    return found


def _headers(facts: Fetcher, about: _About) -> dict[str, str]:
    found = {name: about.value(given) for name, given in facts.from_event}
    for name, value in found.items():
        if value is not None and not (isinstance(value, str) and _HEADER.fullmatch(value)):
            raise Permanent(f"{about.words}: its value of {name} cannot be a header: {_shown(value)}")
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _shown(value: object) -> str:
    return repr(value[:80]) if isinstance(value, str) else f"it is {type(value).__name__}"
