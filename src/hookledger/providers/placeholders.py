"""Fill the placeholders of a sample: `${id}`, `${time-60}`, `${text:customer:14}` …

The values depend only on the event's id, so the same id gives the same body. A placeholder that is the whole text
becomes a number if its kind is a number.

| kind | becomes |
|---|---|
| `id`, `id_number` | the event's id; as a number |
| `time`, `ms` | when it happened, in Unix seconds or milliseconds |
| `iso`, `iso_ms`, `iso_offset`, `iso_plain` | the same as text: `…:00Z`, `…:00.000Z`, `…:00+00:00`, `…:00` |
| `date`, `mail` | its date; in the form of mail headers |
| `text:NAME:LENGTH`, `hex:…`, `digits:…` | a made-up id, the same for each use of NAME |
| `number:NAME:LENGTH`, `uuid:NAME` | the same, as a number or a UUID |

Times may be moved by seconds: `${iso+86400}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import shake_256
from typing import Any
from uuid import UUID

_PLACEHOLDER = re.compile(r"\$\{(\w+)(?::(\w+))?(?::(\d+))?([+-]\d+)?\}")
_TIMED = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?7[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$|\b([0-9]{16})$")
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DAY = 86400
_LENGTH = 24


def moment(ident: str, now: float) -> float:
    """Return the event's time: the time in an id made here, otherwise the start of the day of `now`."""
    timed = _TIMED.search(ident)
    if timed is None:
        return now - now % _DAY
    return int(timed[3]) / 1_000_000 if timed[3] else int(timed[1] + timed[2], 16) / 1000


def fill(value: Any, ident: str, at: float) -> Any:
    """Return a copy of the sample's JSON with its placeholders filled."""
    if isinstance(value, dict):
        return {name: fill(inner, ident, at) for name, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, ident, at) for inner in value]
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    if whole is not None:
        return _filled(whole, ident, at)
    return _PLACEHOLDER.sub(lambda found: str(_filled(found, ident, at)), value)


def _filled(found: re.Match[str], ident: str, at: float) -> str | int:
    kind, name, length, moved = found.groups()
    if kind == "id":
        return ident
    if kind == "id_number":
        return int(ident) if ident.isdecimal() else _number(_stream(ident, "id", 8), 13)
    if kind in _TIMES:
        return _TIMES[kind](at + int(moved or 0))
    count = int(length or _LENGTH)
    return _MADE_UP[kind](_stream(ident, name, max(count, 16)), count)


def _stream(ident: str, name: str, count: int) -> bytes:
    return shake_256(f"{name}\0{ident}".encode()).digest(count)


def _iso(form: str) -> Callable[[float], str]:
    return lambda at: datetime.fromtimestamp(at, UTC).strftime(form)


def _number(made: bytes, count: int) -> int:
    """Return a number with exactly `count` digits."""
    least: int = 10 ** (count - 1)
    return least + int.from_bytes(made[:8]) % (9 * least)


_TIMES: dict[str, Callable[[float], str | int]] = {
    "time": int,
    "ms": lambda at: round(at * 1000),
    "iso": _iso("%Y-%m-%dT%H:%M:%SZ"),
    "iso_ms": lambda at: datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:23] + "Z",
    "iso_offset": _iso("%Y-%m-%dT%H:%M:%S+00:00"),
    "iso_plain": _iso("%Y-%m-%dT%H:%M:%S"),
    "date": _iso("%Y-%m-%d"),
    "mail": _iso("%a, %d %b %Y %H:%M:%S +0000"),
}
_MADE_UP: dict[str, Callable[[bytes, int], str | int]] = {
    "text": lambda made, count: "".join(_LETTERS[byte % len(_LETTERS)] for byte in made)[:count],
    "hex": lambda made, count: made.hex()[:count],
    "digits": lambda made, count: str(_number(made, count)),
    "number": _number,
    "uuid": lambda made, _: str(UUID(bytes=made[:16], version=4)),
}
