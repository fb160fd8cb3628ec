"""The signed message: a template, filled with parts of the request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from string import Formatter
from typing import Any

import msgspec

from ...errors import ConfigError, Malformed, Unauthentic, UnreadableError
from ...model import Headers, Request
from .. import forms
from ..tolerant import picker
from .base import only

PLACEHOLDERS = {
    "body": "the raw body",
    "ts": "the bytes of the timestamp",
    "id": "the value of the id header",
    "url": "the public URL with its query",
    "method": "the HTTP method",
    "form": "every form field, sorted by name, as name and value without separators",
    "headers": "the names in the signature header's `h=`, a dot, and the values of those headers joined by dots",
}
"""Also `{json:PATH.TO.FIELD}` and `{form:NAME}`: one field of the body."""

MAX_NAMED = 64  # headers; an unverified request could name the longest many times


@cache
def parts(template: str) -> tuple[tuple[bytes, str | None], ...]:
    """Return the template as pairs of a literal and the placeholder after it."""
    try:
        found = [
            (literal.encode(), None if name is None else f"{name}:{spec}" if spec else name)
            for literal, name, spec, _ in Formatter().parse(template)
        ]
    except ValueError as error:
        raise ConfigError(f"the signed message {template!r} is not a template: {error}") from error
    for _, name in found:
        if name is not None and name not in PLACEHOLDERS and not name.startswith(("json:", "form:")):
            known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ConfigError(f"the signed message {template!r} has an unknown placeholder {{{name}}}: use {known}")
    return tuple(found)


@cache
def fields(template: str) -> frozenset[str]:
    """Return the placeholders in a template."""
    return frozenset(name for _, name in parts(template) if name)


@cache
def after_id(template: str) -> bytes:
    """Return the text between {id} and the next placeholder."""
    return next((after[0] for part, after in pairwise(parts(template)) if part[1] == "id"), b"")


def check_signed(template: str, *, ts: bool, ident: bool) -> None:
    """Raise ConfigError unless the message has {ts} and {id} exactly if the request has them: an unsigned timestamp
    proves no freshness, an unsigned id no identity."""
    for name, given in (("ts", ts), ("id", ident)):
        if given != (name in fields(template)):
            raise ConfigError(f"{{{name}}} must be both in the signed message and in the request: set both")
    if ident and not after_id(template):
        raise ConfigError("{id} needs a separator after it in the signed message: add one")


def signed_id(template: str, headers: Headers, header: bytes) -> bytes:
    """Return the value of the id header."""
    value = only(headers, header, "id")
    # "{id}.{ts}.{body}" with id "a.1" and ts "2" is also id "a", ts "1", body "2.…": one signature, two ids.
    # Standard Webhooks forbids the separator in ids; Hookledger rejects such an id.
    if after_id(template) in value:
        raise Malformed("id_malformed")
    return value


@cache
def _form(template: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the template for bytes' `%`, and the placeholders in order."""
    literals = [literal.replace(b"%", b"%%") + (b"" if name is None else b"%b") for literal, name in parts(template)]
    return b"".join(literals), tuple(name for _, name in parts(template) if name is not None)


def render(template: str, values: Mapping[str, bytes]) -> bytes:
    form, names = _form(template)
    return form % tuple(map(values.__getitem__, names))


def other_values(template: str, request: Request, header_names: bytes) -> dict[str, bytes]:
    """Return the values of the less common placeholders: all but body, ts, id and url."""
    named = [name for name in fields(template) if name.startswith("json:")]
    values: dict[str, bytes] = {}
    if named:
        paths = [tuple(name[5:].split(".")) for name in named]
        values.update(zip(named, json_texts(request.body, paths, "signature"), strict=True))
    for name in fields(template):
        if name == "method":
            values[name] = request.method.encode()
        elif name == "form":
            values[name] = sorted_form(request.body)
        elif name == "headers":
            values[name] = _named_headers(request, header_names)
        elif name.startswith("form:"):
            values[name] = form_value(request.body, name[5:], "signature")
    return values


def form(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a form, in order; raise Malformed if it is none."""
    try:
        return forms.pairs(raw)
    except ValueError:
        raise Malformed("form_malformed") from None


def form_value(raw: bytes, name: str, role: str) -> bytes:
    """Return the value of a form field that must occur once."""
    try:
        values = forms.values(raw, name)
    except ValueError:
        raise Malformed("form_malformed") from None
    if len(values) > 1:
        raise Malformed(f"{role}_duplicate")
    if not values or not values[0]:
        raise Unauthentic(f"{role}_missing")
    return values[0]


def json_texts(raw: bytes, paths: Sequence[tuple[str, ...]], role: str) -> list[bytes]:
    """Return texts or numbers of the unverified JSON body; nothing else of it is decoded."""
    try:
        document = picker(*paths)(raw)
    except UnreadableError:
        raise Malformed("body_malformed") from None
    return [_json_text(document, path, role) for path in paths]


def _json_text(value: Any, path: tuple[str, ...], role: str) -> bytes:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise Unauthentic(f"{role}_missing")
    return value.encode("utf-8", "surrogatepass")


def json_text_or_none(raw: bytes, path: tuple[str, ...]) -> bytes | None:
    """Return one text or number of the JSON body; None if absent."""
    try:
        return json_texts(raw, [path], "signature")[0]
    except Unauthentic:
        return None


def sorted_form(raw: bytes) -> bytes:
    """Return the fields sorted by name and value, without duplicates."""
    return b"".join([name + value for name, value in sorted(set(form(raw)))])


def _named_headers(request: Request, names: bytes) -> bytes:
    if names.count(b" ") >= MAX_NAMED:
        raise Malformed("signature_malformed")
    values = [b",".join(request.values(name.lower())) for name in names.split(b" ")]
    return names + b"." + b".".join(values)


def body_digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest().encode()


def with_json_value(raw: bytes, path: tuple[str, ...], value: str | int, *, keep: bool = False) -> bytes:
    """Return the JSON body with one field set; `keep`: unless it is present."""
    document = msgspec.json.decode(raw)
    place = document
    *outer, last = path
    for name in outer:
        place = place.setdefault(name, {})
    if not (keep and last in place):
        place[last] = value
    return msgspec.json.encode(document)
