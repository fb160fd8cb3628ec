"""Read forms and queries as bytes: escaped values need not be UTF-8, and must still compare exactly."""

from __future__ import annotations

import re

MOST = 1000
"""Fields; no webhook sends more."""
MOST_BROKEN = 64 * 1024
"""Bytes of a form with invalid percent escapes: repairing takes longer than reading."""

_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values, in order; raise ValueError if there are too many."""
    # urllib's parse_qsl would take a second for a MiB of percent signs.
    try:
        return [(_unquoted(name), _unquoted(value)) for name, value in _parts(raw)]
    except UnicodeDecodeError:
        return [(_unquoted(name), _unquoted(value)) for name, value in _parts(_repaired(raw))]


def values(raw: bytes, name: str) -> list[bytes]:
    """Return every value of one name; raise ValueError as above. Other fields are not decoded."""
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
    """Return the form with each invalid percent sign escaped."""
    if len(raw) > MOST_BROKEN:
        raise ValueError("invalid percent escape")
    return _NO_ESCAPE.sub(b"%25", raw)


def _unquoted(text: bytes) -> bytes:
    r"""Return the text without percent escapes; raise UnicodeDecodeError for an invalid one. Translates `%41` to
    Python's `\x41`, which is decoded in C; all other bytes are Latin-1."""
    if b"%" not in text:
        return text
    return text.replace(b"\\", rb"\\").replace(b"%", rb"\x").decode("unicode_escape").encode("latin-1")


def parameters(query: bytes) -> dict[str, str]:
    """Return the parameters of a URL as text, the first of several values; empty if unreadable."""
    try:
        found = pairs(query) if query else []
    except ValueError:
        return {}
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in reversed(found)}
