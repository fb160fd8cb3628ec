"""The shape of content: which fields there are and of which JSON types. No values, and no names that may be values.

What a sender names its fields is not ours to choose: depth, number and length are bounded, and names that look like
ids, addresses or free text are folded, as are those of an object with too many fields to be declared ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from ..store.causes import is_identifier
from .breaks import FOLDED, MAX_POINTER
from .bundle import DRAFT

MAX_DEPTH = 20
MAX_FIELDS = 200
"""Of one object in a draft; beyond them it is drafted as an object of any names."""
MANY = 100
"""Fields of one object, beyond which its names are taken for values."""
MAX_ITEMS = 50
"""Items of one array whose fields are listed."""
MAX_NODES = 5_000
"""Values of one content, and places of one draft."""
_LINKED = re.compile(r"[-.:]")


class Seen(NamedTuple):
    """A place of content and the JSON type that was found there."""

    field: str
    """A JSON pointer with `*` for the items of arrays and for folded names."""
    kind: str


def is_name(name: str) -> bool:
    """Whether a field's name is a declared one, and not an id, an address or a text."""
    return is_identifier(_LINKED.sub("_", name.removeprefix("@").removeprefix("$")))


def kind_of(value: object) -> str:
    """Return the JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def fields(content: object) -> set[Seen]:
    """Return the places of content with their types, at most MAX_NODES."""
    found: set[Seen] = set()
    waiting: list[tuple[object, str, int]] = [(content, "", 0)]
    looked_at = 0
    while waiting and looked_at < MAX_NODES:
        value, place, depth = waiting.pop()
        looked_at += 1
        found.add(Seen(place or "/", kind_of(value)))
        if depth == MAX_DEPTH or len(place) > MAX_POINTER - 60:
            continue
        if isinstance(value, list):
            waiting += [(inner, f"{place}/{FOLDED}", depth + 1) for inner in value[:MAX_ITEMS]]
        elif isinstance(value, dict):
            folds = len(value) > MANY
            waiting += [
                (inner, f"{place}/{FOLDED if folds or not is_name(name) else name}", depth + 1)
                for name, inner in list(value.items())[:MAX_NODES]
            ]
    return found


# ── drafts ──


class _Place(Struct):
    """What was seen at one place."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Place] = {}
    seen: Counter[str] = field(default_factory=Counter)
    """In how many objects each field was."""
    rest: _Place | None = None
    """The values of folded names,"""
    items: _Place | None = None
    """and of arrays."""


class Draft:
    """Collects contents into a schema that fits all of them."""

    def __init__(self) -> None:
        self._root = _Place()
        self._places = 1
        self.contents: int = 0

    def add(self, content: object) -> None:
        self.contents += 1
        self._add(self._root, content, 0)

    def _add(self, place: _Place, value: object, depth: int) -> None:
        place.kinds[kind_of(value)] += 1
        if depth == MAX_DEPTH:
            return
        if isinstance(value, list):
            for inner in value:  # all: what only the last one lacks is not required
                place.items = place.items or self._new()
                self._add(place.items, inner, depth + 1)
        elif isinstance(value, dict):
            self._add_fields(place, value, depth)

    def _add_fields(self, place: _Place, value: Mapping[str, Any], depth: int) -> None:
        folds = len(value) > MANY
        for name, inner in value.items():
            known = place.fields.get(name)
            if known is None and (folds or not is_name(name) or self._is_full(place)):
                place.rest = place.rest or self._new()
                self._add(place.rest, inner, depth + 1)
                continue
            if known is None:
                known = place.fields[name] = self._new()
            place.seen[name] += 1
            self._add(known, inner, depth + 1)

    def _is_full(self, place: _Place) -> bool:
        return len(place.fields) >= MAX_FIELDS or self._places >= MAX_NODES

    def _new(self) -> _Place:
        self._places += 1
        return _Place()

    def document(self, title: str) -> dict[str, Any]:
        """Return the schema: types, and as required what every object of a place had. It allows unknown fields."""
        said = f"Drafted from {self.contents:,} events: types, and what all of them have. Check it before you use it."
        return {"$schema": DRAFT, "title": title, "$comment": said, **_written(self._root)}


def _written(place: _Place) -> dict[str, Any]:
    kinds = set(place.kinds)
    if "number" in kinds:
        kinds.discard("integer")
    written: dict[str, Any] = {}
    if kinds:
        written["type"] = next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)
    objects = place.kinds["object"]
    if required := sorted(name for name, count in place.seen.items() if count == objects > 1):
        written["required"] = required
    if place.fields:
        written["properties"] = {name: _written(inner) for name, inner in sorted(place.fields.items())}
    elif place.rest is not None:
        written["additionalProperties"] = _written(place.rest)
    if place.items is not None:
        written["items"] = _written(place.items)
    return written
