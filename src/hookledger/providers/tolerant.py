"""JSON as providers send it. The signature's parts and the event's fields must be read alike: both are read here.

Strangers choose what is read here, so the time per byte is bounded (decision 0032).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any, TypedDict, Union

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

MAX_NESTING = 128
MAX_ODD = 64 * 1024
"""Bytes of unproved JSON that the standard library reads: it makes an object of every value."""

MAX_ELEMENTS = 1000
"""Of an array whose elements are taken apart one by one."""

Tree = Mapping[str, Union["Tree", list["Tree"], None]]
"""Fields to read. A list stands for an array of objects that each have all its names."""

# msgspec's own floats take up to 11 µs each near the limits; Python's give the same values in 0.3 µs.
decode_plain = msgspec.json.Decoder(float_hook=float).decode


class UnreadableError(ValueError):
    """The body is not what the contract says; the text is the reason, without any of the body in it."""


def decode_json(raw: bytes) -> object:
    """More tolerant than msgspec alone: lone surrogates and NaN are what some providers send, so the standard library
    has the second word."""
    check_nesting(raw)
    try:
        try:
            return decode_plain(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return json.loads(raw.decode())
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UnreadableError("not JSON") from None
    except ValueError:  # of `int`, where the document is JSON so far
        raise UnreadableError(f"an integer of over {sys.get_int_max_str_digits():,} digits") from None


class Picker:
    """Reads some fields of a document, as `decode_json` reads them. The rest is only scanned, which takes a few
    milliseconds per MiB; an array or object in the place of a text or number may be left empty."""

    def __init__(self, tree: Tree | list[Tree], leaf: Any = str | int | bool | None) -> None:
        """`leaf`: what is read in one go. Not float: see decode_plain. Any, which may be large, of believed bytes."""
        self._tree = tree
        self._decode = msgspec.json.Decoder(_typed(tree, leaf), float_hook=float).decode

    def __call__(self, raw: bytes) -> object:
        """Of bytes that are not believed yet: lone surrogates and NaN are tolerated up to MAX_ODD bytes only."""
        try:
            return self.plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if len(raw) > MAX_ODD:
                raise UnreadableError("not JSON") from None
        return decode_json(raw)

    def believed(self, raw: bytes) -> object:
        """Of bytes that are believed, whatever their size."""
        try:
            return self.plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode_json(raw)

    def plain(self, raw: bytes) -> object:
        """Of JSON without lone surrogates and NaN; DecodeError or UnicodeDecodeError if it is not."""
        try:
            raw.decode()  # what is only scanned is not checked
            try:
                return self._decode(raw)
            except msgspec.ValidationError:  # an array where a text belongs, say
                return _picked(raw.lstrip(b" \t\r\n"), self._tree)
        except msgspec.ValidationError:
            raise UnreadableError("not of the expected form") from None
        except RecursionError:
            raise UnreadableError("nested too deeply") from None


@cache
def picker(*paths: tuple[str, ...], array: bool = False) -> Picker:
    """For these fields of an object; of each object in an array."""
    tree = tree_of(*paths)
    return Picker([tree] if array else tree)


def tree_of(*paths: tuple[str, ...]) -> Tree:
    """The tree with these fields, none of which is inside another."""
    tree: dict[str, Tree | list[Tree] | None] = {}
    for path in paths:
        *outer, last = path
        branch = tree
        for name in outer:
            branch = branch.setdefault(name, {})  # type: ignore[assignment]
        branch[last] = None
    return tree


def _typed(tree: Tree | list[Tree] | None, leaf: Any, *, required: bool = False) -> Any:
    """The usual form of a document."""
    if isinstance(tree, list):
        return list[_typed(tree[0], leaf, required=True)]  # type: ignore[misc]
    if tree is None:
        return leaf
    fields = {name: _typed(inner, leaf) for name, inner in tree.items()}
    return TypedDict("Fields", fields, total=required)  # type: ignore[operator]


def _picked(raw: bytes | Raw, tree: Tree | list[Tree] | None) -> object:
    """The same of any form, by taking it apart layer by layer."""
    lead = bytes(memoryview(raw)[:1])
    if lead == b"{" and isinstance(tree, dict):
        found = _members(tuple(tree)).decode(raw)
        return {name: _picked(inner, tree[name]) for name, inner in found.items()}
    if lead == b"[" and isinstance(tree, list):
        elements = _elements(tuple(tree[0])).decode(raw)
        if len(elements) > MAX_ELEMENTS:
            raise UnreadableError(f"more than {MAX_ELEMENTS} elements")
        return [
            {name: _picked(inner, tree[0][name]) for name, inner in zip(tree[0], astuple(element), strict=True)}
            for element in elements
        ]
    if lead in (b"{", b"["):
        if isinstance(raw, bytes):  # not scanned yet as a part of something
            _scan(raw)
        return {} if lead == b"{" else []
    return decode_plain(raw)


_scan = msgspec.json.Decoder(Raw).decode


@cache
def _members(names: tuple[str, ...]) -> msgspec.json.Decoder[dict[str, Raw]]:
    """Takes the named members of an object out as the bytes they are written in."""
    return msgspec.json.Decoder(TypedDict("Members", dict.fromkeys(names, Raw), total=False))  # type: ignore


@cache
def _elements(names: tuple[str, ...]) -> msgspec.json.Decoder[list[msgspec.Struct]]:
    """The same for each object of an array, where it has them all: it stops at the first that has not."""
    fields = {f"field_{number}": name for number, name in enumerate(names)}
    element = msgspec.defstruct("Element", [(field, Raw) for field in fields], rename=fields, gc=False)
    return msgspec.json.Decoder(list[element])  # type: ignore


# ── nesting ──────────────────────────────────────────────────────────────────

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


def check_nesting(raw: bytes) -> None:
    """UnreadableError if JSON is nested too deeply. The interpreter's own limit depends on how deep the caller is;
    the same bytes must always be read alike."""
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _depth(raw) > MAX_NESTING:
        raise UnreadableError("nested too deeply")


def _depth(raw: bytes) -> int:
    """How deep well-formed JSON is nested; any number where it is not."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of quotes begins or ends a string
    steps = b"".join(raw.split(b'"')[::2]).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)
