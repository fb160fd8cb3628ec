"""Forms and queries, read byte for byte: what percent signs stand for need not be UTF-8, and still must compare."""

from __future__ import annotations

import re

MOST = 1000
"""Fields; a form with more is not a webhook's."""
MOST_BROKEN = 64 * 1024
"""Bytes of a form in which a percent sign may begin no escape: finding them takes longer than reading the form."""

_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values, in their order; ValueError if there are too many."""
    # Not with urllib's parse_qsl: that takes a second for a MiB of percent signs.
    try:
        return [(_unquoted(name), _unquoted(value)) for name, value in _parts(raw)]
    except UnicodeDecodeError:
        return [(_unquoted(name), _unquoted(value)) for name, value in _parts(_repaired(raw))]


def values(raw: bytes, name: str) -> list[bytes]:
    """Every value of one name; ValueError as above. The others are not decoded."""
    try:
        return _values(raw, name.encode())
    except UnicodeDecodeError:
        return _values(_repaired(raw), name.encode())


def _values(raw: bytes, wanted: bytes) -> list[bytes]:
    longest = 3 * len(wanted)  # each byte as an escape
    return [_unquoted(value) for name, value in _parts(raw) if len(name) <= longest and _unquoted(name) == wanted]


def _parts(raw: bytes) -> list[tuple[bytes, bytes]]:
    if raw.count(b"&") >= MOST:
        raise ValueError("too many fields")
    parts = [part.partition(b"=") for part in raw.replace(b"+", b" ").split(b"&") if part]
    return [(name, value) for name, _, value in parts]


def _repaired(raw: bytes) -> bytes:
    """The form with each percent sign that begins no escape as an escape."""
    if len(raw) > MOST_BROKEN:
        raise ValueError("a percent sign begins no escape")
    return _NO_ESCAPE.sub(b"%25", raw)


def _unquoted(text: bytes) -> bytes:
    r"""UnicodeDecodeError where a percent sign begins no escape. Python's own escapes are decoded in C: `%41` is
    `\x41` there, and all other bytes are Latin-1."""
    if b"%" not in text:
        return text
    return text.replace(b"\\", rb"\\").replace(b"%", rb"\x").decode("unicode_escape").encode("latin-1")


def parameters(query: bytes) -> dict[str, str]:
    """The parameters of a URL as text, the first of several values each; none if they cannot be read."""
    try:
        found = pairs(query) if query else []
    except ValueError:
        return {}
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in reversed(found)}
