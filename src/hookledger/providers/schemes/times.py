"""The signed time of a request: where it stands, and in which unit."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from ...errors import ConfigError, Malformed, Unauthentic
from ...model import Headers
from ..tolerant import UnreadableError, picker
from .base import only

Unit = Literal["s", "ms", "us", "iso"]

AHEAD = 300.0
"""Seconds that a signed time may be ahead of our clock: what clocks differ by. However long a provider retries, no
attempt is signed in the future, and a time far ahead would let a captured request live for as much longer."""
MAX_DIGITS = 15  # milliseconds until the year 33658, and still exact as a float
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000}


class Timestamp(Struct, frozen=True, kw_only=True):
    """Where the signed time is: one of the four places."""

    header: bytes | None = None
    """A header of its own."""
    prefix: bytes | None = None
    """An element of the signature's header that begins so."""
    first: bool = False
    """The first element of the signature's header."""
    body: tuple[str, ...] | None = None
    """A field of the JSON, covered because all of the body is; read once the signature is believed."""
    unit: Unit = "s"
    tolerance: float = 300.0
    """Seconds back: the provider's advice where each attempt is signed anew (`Retries.anew`), else its retry window.
    Ahead of our clock it is at most AHEAD."""

    def __post_init__(self) -> None:
        if sum((self.header is not None, self.prefix is not None, self.first, self.body is not None)) != 1:
            raise ConfigError(
                "a timestamp has a header of its own, or a prefix or the first place in the signature header, or a "
                "field of the body: name one"
            )

    def read(self, headers: Headers, elements: list[bytes]) -> bytes:
        """The time as it is written, from the headers."""
        if self.header is not None:
            return only(headers, self.header, "timestamp")
        if self.first:
            return elements[0]
        prefix = self.prefix
        assert prefix is not None
        found = None
        for element in elements:
            if element.startswith(prefix):
                if found is not None:
                    raise Malformed("timestamp_duplicate")
                found = element
        if found is None:
            raise Unauthentic("timestamp_missing")
        return found.removeprefix(prefix)


def seconds(raw: bytes, unit: Unit) -> float:
    """Unix seconds of a time as it is written."""
    if unit == "iso":
        return iso_seconds(raw.decode("latin-1"))
    # bytes.isdigit knows ASCII digits only; int() alone takes signs, spaces, "_" and a megabyte of digits.
    if not raw.isdigit() or len(raw) > MAX_DIGITS + 3 * (unit == "us"):
        raise Malformed("timestamp_malformed")
    return int(raw) / PER_SECOND[unit]


def iso_seconds(text: str) -> float:
    # Whole, with its zone: a shorter form of the same text would be a time, too, and move its end into the body.
    if not _ISO.fullmatch(text):
        raise Malformed("timestamp_malformed")
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise Malformed("timestamp_malformed") from None


def written(now: float, unit: Unit) -> bytes:
    """A moment as the provider writes it."""
    if unit == "iso":
        return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    return b"%d" % (now * PER_SECOND[unit])


def in_body(path: tuple[str, ...], unit: Unit, raw: bytes) -> float:
    """The time in a body that is believed."""
    try:
        value = picker(path).believed(raw)
    except UnreadableError:
        raise Unauthentic("timestamp_missing") from None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        raise Unauthentic("timestamp_missing")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise Malformed("timestamp_malformed")
    return seconds(value.encode("utf-8", "surrogatepass"), unit)
