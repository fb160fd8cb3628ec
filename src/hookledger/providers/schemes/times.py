"""The signed time of a request: its place and unit."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from ...errors import ConfigError, Malformed, Unauthentic, UnreadableError
from ...model import Headers
from ..tolerant import picker
from .base import only

Unit = Literal["s", "ms", "us", "iso"]

AHEAD = 300.0
"""Seconds that a signed time may be ahead of the receiver's clock, for clock skew. Providers sign no attempt in the
future, however long they retry, and a time far ahead would keep a captured request valid for as much longer."""
MAX_DIGITS = 15  # milliseconds until the year 33658, and still exact as a float
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000}


class Timestamp(Struct, frozen=True, kw_only=True):
    """The place of the signed time: exactly one of four."""

    header: bytes | None = None
    """A separate header."""
    prefix: bytes | None = None
    """The prefix of an element of the signature's header."""
    first: bool = False
    """The first element of the signature's header."""
    body: tuple[str, ...] | None = None
    """A field of the signed JSON body; read after the signature is verified."""
    unit: Unit = "s"
    tolerance: float = 300.0
    """Seconds that the time may be old: the provider's advice if it signs each attempt again
    (`Retries.signs_each_attempt`), otherwise its retry window. It may be at most AHEAD in the future."""

    def __post_init__(self) -> None:
        if sum((self.header is not None, self.prefix is not None, self.first, self.body is not None)) != 1:
            raise ConfigError(
                "the signed time needs exactly one place: set header, prefix or first (in the signature's header), "
                "or body"
            )

    def read(self, headers: Headers, elements: list[bytes]) -> bytes:
        """Return the time as written in the headers."""
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
    """Return a written time as Unix seconds."""
    if unit == "iso":
        return iso_seconds(raw.decode("latin-1"))
    # bytes.isdigit accepts only ASCII digits; int() would accept signs, spaces, "_" and a megabyte of digits.
    if not raw.isdigit() or len(raw) > MAX_DIGITS + 3 * (unit == "us"):
        raise Malformed("timestamp_malformed")
    return int(raw) / PER_SECOND[unit]


def iso_seconds(text: str) -> float:
    # Complete, with zone: a shorter form would be a valid time, too, and its rest could move into the body.
    if not _ISO.fullmatch(text):
        raise Malformed("timestamp_malformed")
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise Malformed("timestamp_malformed") from None


def written(now: float, unit: Unit) -> bytes:
    """Return a time as the provider writes it."""
    if unit == "iso":
        return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    return b"%d" % (now * PER_SECOND[unit])


def in_body(path: tuple[str, ...], unit: Unit, raw: bytes) -> float:
    """Return the time in a verified body."""
    try:
        value = picker(path).trusted(raw)
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
