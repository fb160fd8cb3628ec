"""Decode a body and split it into events. Any content either decodes or raises UnreadableError."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from ..errors import UnreadableError
from . import forms
from .contract import Contract
from .fields import Body, Content, Field, Present
from .tolerant import MAX_NESTING, Picker, check_nesting, decode_json, tree_of

MAX_ITEMS = 10_000
"""Events in one request; no provider sends more."""
MAX_SHARED = 8 * 1024 * 1024
"""Bytes of the fields around events, counted with each event that they are added to."""


def decode(contract: Contract, raw: bytes) -> object:
    """Return the body's content; raise UnreadableError if it has none."""
    match contract.content:
        case "form":
            return _form(raw)
        case "braintree":
            return _braintree(raw)
    # The bytes are signed and the content type is not, so the bytes decide; no JSON begins like this.
    if contract.form_field is not None and raw.startswith(contract.form_field.encode() + b"="):
        raw = _one(raw, contract.form_field)
    return decode_json(raw)


def contents(contract: Contract, document: object) -> list[object]:
    """Return the events in a decoded body, in order; raise UnreadableError if they cannot be found."""
    if contract.items is None:
        return [document]
    ways = contract.items
    if not _has_array(document, ways):
        raise UnreadableError("the body has no array of events")
    found: list[object] = []
    shared, size, total = None, 0, 0
    for around, event in _walk(document, ways, contract, {}, {}):
        if around is not shared:
            shared, size = around, len(json.dumps(around)) if around else 0
        total += size
        if len(found) == MAX_ITEMS:
            raise UnreadableError(f"the body has more than {MAX_ITEMS} events")
        if total > MAX_SHARED:
            raise UnreadableError("the fields that its events share are too large")
        found.append({**around, **event} if isinstance(event, dict) else event)
    return found


def _has_array(document: object, ways: tuple[tuple[str, ...], ...]) -> bool:
    if () in ways:
        return isinstance(document, list | dict)  # some send one event without an array around it
    if not isinstance(document, dict) or not any(way[0] in document for way in ways):
        return False
    return all(isinstance(document[way[0]], list) for way in ways if len(way) == 1 and way[0] in document)


def _walk(
    found: object, ways: tuple[tuple[str, ...], ...], contract: Contract, inherited: Content, around: Content
) -> Iterator[tuple[Content, object]]:
    """Yield each event, preceded by the fields around it that are added to it."""
    if isinstance(found, list):
        for part in found:
            yield from _walk(part, ways, contract, inherited, around)
        return
    if not isinstance(found, dict):
        yield {}, found
        return
    names = [name for name in dict.fromkeys(way[0] for way in ways if way) if name in found]
    if () in ways:
        yield inherited, found
        return
    if not names:  # the path ends early: keep the whole object instead of losing it
        yield {**around, **inherited}, found
        return
    inherited = {**inherited, **{name: found[name] for name in contract.inherit if name in found}}
    around = {**around, **{alias: found[name] for name, alias in contract.around if name in found}}
    for name in names:
        rest = tuple(way[1:] for way in ways if way and way[0] == name)
        yield from _walk(found[name], rest, contract, inherited, around)


def outline(contract: Contract, key: tuple[Field, ...] = ()) -> Callable[[bytes], object] | None:
    """Return a function that reads only the fields that identify an event, far cheaper than the whole body.

    `key`: the fields of the source's own key, if any. Returns None unless the body is a single JSON event. The
    function raises ValueError for anything but plain JSON; then use `decode`.
    """
    if contract.items is not None or contract.content != "json":
        return None
    fields = (*contract.body_fields, *key)
    if any(isinstance(field, Present) for field in fields):
        return None  # it may have any name: read the whole body
    paths = {field.path for field in fields if isinstance(field, Body)}
    if any(path[:end] in paths for path in paths for end in range(1, len(path))):
        return None  # one field inside another: read the whole body
    plain = Picker(tree_of(*sorted(paths)), Any).plain

    def read(raw: bytes) -> object:
        check_nesting(raw)
        return plain(raw)

    return read


# ── forms ────────────────────────────────────────────────────────────────────


def _fields(raw: bytes) -> list[tuple[bytes, bytes]]:
    try:
        return forms.pairs(raw)
    except ValueError:
        raise UnreadableError("the body is not a form") from None


def _form(raw: bytes) -> dict[str, object]:
    """Return names and texts; several values of one name as a list."""
    content: dict[str, object] = {}
    for name, value in _fields(raw):
        key, text = name.decode("utf-8", "replace"), value.decode("utf-8", "replace")
        known = content.get(key)
        if isinstance(known, list):
            known.append(text)
        else:
            content[key] = text if known is None else [known, text]
    if not content:
        raise UnreadableError("the body is not a form")
    return content


def _one(raw: bytes, name: str) -> bytes:
    values = [value for key, value in _fields(raw) if key == name.encode()]
    if len(values) != 1:
        raise UnreadableError(f"the body is not a form with one {name}")
    return values[0]


def _braintree(raw: bytes) -> dict[str, object]:
    """Return the content of a form field that holds base64 of XML."""
    try:
        text = base64.b64decode(_one(raw, "bt_payload")).decode()
        if "<!" in text:
            raise UnreadableError("the XML has declarations")
        tree = ElementTree.fromstring(text.encode())  # noqa: S314 - signed, and cannot expand without declarations
    except (ValueError, LookupError, ElementTree.ParseError) as problem:
        if isinstance(problem, UnreadableError):
            raise
        raise UnreadableError("the body is not Braintree's XML") from None
    content = _element(tree, 0)
    return content if isinstance(content, dict) else {}


def _element(element: ElementTree.Element, depth: int) -> object:
    if depth > MAX_NESTING:
        raise UnreadableError("the body is nested too deeply")
    if len(element) == 0:
        return element.text or ""
    if element.get("type") == "array":
        return [_element(child, depth + 1) for child in element]
    return {child.tag: _element(child, depth + 1) for child in element}
