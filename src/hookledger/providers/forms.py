"""Forms and queries, read byte for byte: what percent signs stand for need not be UTF-8, and still must compare."""

from __future__ import annotations

from urllib.parse import parse_qsl

MOST = 1000
"""Fields; a form with more is none of a webhook's."""


def pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values, in their order; ValueError if there are too many."""
    # parse_qsl takes bytes, too, but fails where they stand for anything but ASCII.
    found = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST, encoding="latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found]


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
