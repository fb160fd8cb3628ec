"""Forms and queries, read byte for byte: what percent signs stand for need not be UTF-8, and still must compare."""

from __future__ import annotations

import re

MOST = 1000
"""Fields; a form with more is not a webhook's. As many percent signs may begin no escape."""

_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values, in their order; ValueError if there are too many."""
    # Not with urllib's parse_qsl: that takes a second for a MiB of percent signs.
    if raw.count(b"&") >= MOST:
        raise ValueError("too many fields")
    try:
        return _pairs(raw)
    except UnicodeDecodeError:
        raw, broken = _NO_ESCAPE.subn(b"%25", raw, count=MOST + 1)
        if broken > MOST:
            raise ValueError("too many percent signs that begin no escape") from None
        return _pairs(raw)


def _pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    parts = [part.partition(b"=") for part in raw.replace(b"+", b" ").split(b"&") if part]
    return [(_unquoted(name), _unquoted(value)) for name, _, value in parts]


def _unquoted(text: bytes) -> bytes:
    r"""UnicodeDecodeError where a percent sign begins no escape. Python's own escapes are decoded in C: `%41` is
    `\x41` there, and all other bytes are Latin-1."""
    if b"%" not in text:
        return text
    return text.replace(b"\\", rb"\\").replace(b"%", rb"\x").decode("unicode_escape").encode("latin-1")


def values(raw: bytes, name: str) -> list[bytes]:
    """Every value of one name; ValueError as above."""
    wanted = name.encode()
    return [value for key, value in pairs(raw) if key == wanted]


def parameters(query: bytes) -> dict[str, str]:
    """The parameters of a URL as text, the first of several values each; none if they cannot be read."""
    try:
        found = pairs(query) if query else []
    except ValueError:
        return {}
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in reversed(found)}
