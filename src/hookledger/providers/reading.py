"""What a body contains: decoded, and taken apart into events. Nothing that a body can contain makes it fail."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypedDict
from xml.etree import ElementTree

import msgspec

from . import forms
from .contract import Contract
from .fields import Body, Content, Field, Present
from .tolerant import MAX_NESTING, UnreadableError, decode_json

MAX_ITEMS = 10_000
"""More events than any provider puts into one request."""


def decode(contract: Contract, raw: bytes) -> object:
    """The body's content, or UnreadableError."""
    match contract.content:
        case "form":
            return _form(raw)
        case "braintree":
            return _braintree(raw)
    # The bytes are signed and the content type is not, so the bytes decide; no JSON text begins like this.
    if contract.form_field is not None and raw.startswith(contract.form_field.encode() + b"="):
        raw = _one(raw, contract.form_field)
    return decode_json(raw)


def contents(contract: Contract, document: object) -> list[object]:
    """The events in a decoded body, in their order, or UnreadableError."""
    if contract.items is None:
        return [document]
    ways = contract.items
    if not _has_array(document, ways):
        raise UnreadableError("no array of events")
    found = list(islice(_walk(document, ways, contract, {}, {}), MAX_ITEMS + 1))
    if len(found) > MAX_ITEMS:
        raise UnreadableError(f"more than {MAX_ITEMS} events")
    return found


def _has_array(document: object, ways: tuple[tuple[str, ...], ...]) -> bool:
    if () in ways:
        return isinstance(document, list | dict)  # some send one event without an array around it
    if not isinstance(document, dict) or not any(way[0] in document for way in ways):
        return False
    return all(isinstance(document[way[0]], list) for way in ways if len(way) == 1 and way[0] in document)


def _walk(
    found: object, ways: tuple[tuple[str, ...], ...], contract: Contract, inherited: Content, around: Content
) -> Iterator[object]:
    if isinstance(found, list):
        for part in found:
            yield from _walk(part, ways, contract, inherited, around)
        return
    if not isinstance(found, dict):
        yield found
        return
    names = [name for name in dict.fromkeys(way[0] for way in ways if way) if name in found]
    if () in ways:
        yield {**inherited, **found}
        return
    if not names:  # the way ends early: whatever this is, it is kept whole instead of being lost
        yield {**around, **inherited, **found}
        return
    inherited = {**inherited, **{name: found[name] for name in contract.inherit if name in found}}
    around = {**around, **{alias: found[name] for name, alias in contract.around if name in found}}
    for name in names:
        rest = tuple(way[1:] for way in ways if way and way[0] == name)
        yield from _walk(found[name], rest, contract, inherited, around)


def outline(contract: Contract, key: tuple[Field, ...] = ()) -> Callable[[bytes], dict[str, Any]] | None:
    """Reads only the fields that identify an event, which is far cheaper than reading all of it.

    `key`: the fields of the source's own key, if it has one. None where the body is no single JSON event. The
    function raises ValueError for whatever is not plain JSON of the expected shape: `decode` has the last word then.
    """
    if contract.items is not None or contract.content != "json":
        return None
    tree: dict[str, Any] = {}
    for field in (*contract.body_fields, *key):
        if isinstance(field, Present):
            return None  # its names may be any: reading all of it is right too
        if not isinstance(field, Body):
            continue
        *outer, last = field.path
        branch = tree
        for name in outer:
            branch = branch.setdefault(name, {})
            if branch is Any:
                return None  # one field inside another: likewise
        branch.setdefault(last, Any)
    decoder = msgspec.json.Decoder(_typed(tree))

    def read(raw: bytes) -> dict[str, Any]:
        if raw.count(b"[") + raw.count(b"{") > MAX_NESTING:
            raise ValueError("perhaps nested too deeply")
        raw.decode()  # what is not read is not checked either
        return decoder.decode(raw)  # type: ignore[no-any-return]

    return read


def _typed(tree: dict[str, Any]) -> Any:
    fields = {name: Any if inner is Any else _typed(inner) for name, inner in tree.items()}
    return TypedDict("Outline", fields, total=False)  # type: ignore[operator]


# ── forms ────────────────────────────────────────────────────────────────────


def _fields(raw: bytes) -> list[tuple[bytes, bytes]]:
    try:
        return forms.pairs(raw)
    except ValueError:
        raise UnreadableError("not a form") from None


def _form(raw: bytes) -> dict[str, object]:
    """Names and texts; several values of one name as a list."""
    content: dict[str, object] = {}
    for name, value in _fields(raw):
        key, text = name.decode("utf-8", "replace"), value.decode("utf-8", "replace")
        known = content.get(key)
        if known is None:
            content[key] = text
        else:
            content[key] = [*known, text] if isinstance(known, list) else [known, text]
    if not content:
        raise UnreadableError("not a form")
    return content


def _one(raw: bytes, name: str) -> bytes:
    values = [value for key, value in _fields(raw) if key == name.encode()]
    if len(values) != 1:
        raise UnreadableError(f"not a form with one {name}")
    return values[0]


def _braintree(raw: bytes) -> dict[str, object]:
    """A form with one field of base64, which is XML."""
    try:
        text = base64.b64decode(_one(raw, "bt_payload")).decode()
        if "<!" in text:
            raise UnreadableError("XML with declarations")
        tree = ElementTree.fromstring(text.encode())  # noqa: S314 - signed, and without declarations nothing can expand
    except (ValueError, LookupError, ElementTree.ParseError) as problem:
        if isinstance(problem, UnreadableError):
            raise
        raise UnreadableError("not Braintree's XML") from None
    content = _element(tree, 0)
    return content if isinstance(content, dict) else {}


def _element(element: ElementTree.Element, depth: int) -> object:
    if depth > MAX_NESTING:
        raise UnreadableError("nested too deeply")
    if len(element) == 0:
        return element.text or ""
    if element.get("type") == "array":
        return [_element(child, depth + 1) for child in element]
    return {child.tag: _element(child, depth + 1) for child in element}
