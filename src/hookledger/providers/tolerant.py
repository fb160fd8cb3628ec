"""Read JSON as providers send it, for the signature and for the event alike: both must find the same values.

Unverified requests are read here, so the time per byte is bounded (decision 0032).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from itertools import accumulate
from typing import Any, TypedDict, Union

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from ..errors import UnreadableError

MAX_NESTING = 128
MAX_FALLBACK = 64 * 1024
"""Bytes of unverified JSON that the standard library reads: it creates an object for every value."""

MAX_ELEMENTS = 1000
"""Elements of an array that are read individually."""

Tree = Mapping[str, Union["Tree", list["Tree"], None]]
"""Fields to read. A list means an array of objects that each have all these names."""

# msgspec's own floats take up to 11 µs each near the limits; Python's give the same values in 0.3 µs.
decode_plain: Callable[[bytes | Raw], Any] = msgspec.json.Decoder(float_hook=float).decode


def decode_json(raw: bytes) -> object:
    """Decode JSON; use the standard library if msgspec fails: some providers send lone surrogates or NaN."""
    check_nesting(raw)
    try:
        try:
            return decode_plain(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return json.loads(raw.decode())
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UnreadableError("the body is not JSON") from None
    except ValueError:  # from `int`
        raise UnreadableError(f"an integer has over {sys.get_int_max_str_digits():,} digits") from None


class Picker:
    """Reads some fields of a document like `decode_json`. The rest is only scanned, in a few milliseconds per MiB; an
    array or object in place of a text or number may be left empty."""

    def __init__(self, tree: Tree | list[Tree], leaf: Any = str | int | bool | None) -> None:
        """`leaf`: the type of the fields. Not float: see decode_plain. Any, which may be large, only for trusted
        bytes."""
        self._tree = tree
        self._decode = msgspec.json.Decoder(_typed(tree, leaf), float_hook=float).decode

    def __call__(self, raw: bytes) -> object:
        """Read unverified bytes; lone surrogates and NaN are tolerated up to MAX_FALLBACK bytes."""
        try:
            return self.plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if len(raw) > MAX_FALLBACK:
                raise UnreadableError("the body is not JSON") from None
        return decode_json(raw)

    def trusted(self, raw: bytes) -> object:
        """Read verified bytes of any size."""
        try:
            return self.plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode_json(raw)

    def plain(self, raw: bytes) -> object:
        """Read JSON without lone surrogates and NaN; raise DecodeError or UnicodeDecodeError otherwise."""
        try:
            raw.decode()  # msgspec does not check what it only scans
            try:
                return self._decode(raw)
            except msgspec.ValidationError:  # such as an array in place of a text
                return _picked(raw.lstrip(b" \t\r\n"), self._tree)
        except msgspec.ValidationError:
            raise UnreadableError("the JSON does not have the expected form") from None
        except RecursionError:
            raise UnreadableError("the JSON is nested too deeply") from None


@cache
def picker(*paths: tuple[str, ...], array: bool = False) -> Picker:
    """Return a reader of these fields of an object; with `array`, of each object in an array."""
    tree = tree_of(*paths)
    return Picker([tree] if array else tree)


def tree_of(*paths: tuple[str, ...]) -> Tree:
    """Return the tree of these fields; none may be inside another."""
    tree: dict[str, Tree | list[Tree] | None] = {}
    for path in paths:
        *outer, last = path
        branch = tree
        for name in outer:
            branch = branch.setdefault(name, {})  # type: ignore[assignment]
        branch[last] = None
    return tree


def _typed(tree: Tree | list[Tree] | None, leaf: Any, *, required: bool = False) -> Any:
    """Return the type of a document in its usual form."""
    if isinstance(tree, list):
        return list[_typed(tree[0], leaf, required=True)]  # type: ignore[misc]
    if tree is None:
        return leaf
    fields = {name: _typed(inner, leaf) for name, inner in tree.items()}
    return TypedDict("Fields", fields, total=required)  # type: ignore[operator]


def _picked(raw: bytes | Raw, tree: Tree | list[Tree] | None) -> object:
    """Read the fields of a document in any form, layer by layer."""
    lead = bytes(memoryview(raw)[:1])
    if lead == b"{" and isinstance(tree, dict):
        found = _members(tuple(tree)).decode(raw)
        return {name: _picked(inner, tree[name]) for name, inner in found.items()}
    if lead == b"[" and isinstance(tree, list):
        elements = _elements(tuple(tree[0])).decode(raw)
        if len(elements) > MAX_ELEMENTS:
            raise UnreadableError(f"an array has more than {MAX_ELEMENTS} elements")
        return [
            {name: _picked(inner, tree[0][name]) for name, inner in zip(tree[0], astuple(element), strict=True)}
            for element in elements
        ]
    if lead in (b"{", b"["):
        if isinstance(raw, bytes):  # not scanned yet as part of a document
            _scan(raw)
        return {} if lead == b"{" else []
    return decode_plain(raw)


_scan = msgspec.json.Decoder(Raw).decode


@cache
def _members(names: tuple[str, ...]) -> msgspec.json.Decoder[dict[str, Raw]]:
    """Return a decoder of the named members of an object, each as its raw bytes."""
    return msgspec.json.Decoder(TypedDict("Members", dict.fromkeys(names, Raw), total=False))  # type: ignore


@cache
def _elements(names: tuple[str, ...]) -> msgspec.json.Decoder[list[msgspec.Struct]]:
    """Return the same for each object of an array; it fails at the first that lacks a name."""
    fields = {f"field_{number}": name for number, name in enumerate(names)}
    element = msgspec.defstruct("Element", [(field, Raw) for field in fields], rename=fields, gc=False)
    return msgspec.json.Decoder(list[element])  # type: ignore


# ── nesting ──────────────────────────────────────────────────────────────────

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


def check_nesting(raw: bytes) -> None:
    """Raise UnreadableError if JSON is nested too deeply. The interpreter's limit depends on the caller's depth; the
    same bytes must always give the same result."""
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _depth(raw) > MAX_NESTING:
        raise UnreadableError("the JSON is nested too deeply")


def _depth(raw: bytes) -> int:
    """Return the nesting depth of well-formed JSON; any number for other bytes."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # each remaining quote begins or ends a string
    steps = b"".join(raw.split(b'"')[::2]).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)
