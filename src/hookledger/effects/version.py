"""Versions for guards: numbers and times, as bytes that compare as they do.

Both databases compare bytes alike, and numbers of any size or precision alike only in this form. Each part of a
version becomes: a byte for its sign and the number of its integer digits (128 + n; 127 - n below zero), these digits,
the digits of the fraction without trailing zeros, and an end that sorts before every digit (after every digit below
zero, where digits are complemented). A longer number is larger; of two equally long ones the first different digit
decides.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from ..errors import BadArguments
from ..ledger import Version

Part = int | float | Decimal | datetime | str
"""A number, an aware datetime, or the time as ISO 8601 text."""
AnyVersion = Part | tuple[Part, ...] | list[Any]

MAX_DIGITS = 127
"""Of the integer part of a number, and of its fraction."""
MAX_PARTS = 8
MAX_TEXT = 64
"""Characters of a time."""
MAX_SHOWN = 255
TAKES = "a number, an aware datetime, ISO 8601 text, or a tuple of these"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r" ?(?P<zone>[Zz]|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_NUMBER = re.compile(r"\s*[+-]?[0-9_]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?\s*")
_COMPLEMENT = bytes.maketrans(b"0123456789", b"9876543210")


def read_version(given: object) -> Version:
    """Return a version as guards compare it. Raises BadArguments if it is not one, with what to give instead."""
    parts = list(given) if isinstance(given, tuple | list) else [given]
    if not parts:
        raise BadArguments(f"the version is empty: give event.newer {TAKES}")
    if len(parts) > MAX_PARTS:
        raise BadArguments(f"the version has {len(parts)} parts: a tuple has at most {MAX_PARTS}")
    read = [_part(part) for part in parts]
    shown = ", ".join(text for _, _, text in read)
    return Version(
        ",".join(kind for kind, _, _ in read),
        b"".join(_position(number) for _, number, _ in read),
        (f"({shown})" if len(read) > 1 else shown)[:MAX_SHOWN],
    )


def _part(given: object) -> tuple[str, Decimal, str]:
    """Return the kind, the value as a number, and the text."""
    match given:
        case bool():
            raise BadArguments(f"the version is {given}: give event.newer {TAKES}")
        case int():
            if abs(given) >= 10**MAX_DIGITS:  # before it is written out: Python refuses that for long ones
                raise _too_long()
            return "number", Decimal(given), str(int(given))
        case float():
            if not isfinite(given):
                raise BadArguments(f"the version is {given!r}: that has no place in an order; give a finite number")
            return "number", Decimal(repr(float(given))), repr(float(given))
        case Decimal():
            if not given.is_finite():
                raise BadArguments(f"the version is {given}: that has no place in an order; give a finite number")
            return "number", given, str(given)
        case datetime():
            return "time", _since_epoch(given), given.isoformat()
        case str():
            return "time", _read_time(given), given
        case None:
            raise BadArguments("the version is None: the event has no such field; name the one that it has")
    raise BadArguments(f"the version is of type {type(given).__name__}: give event.newer {TAKES}")


def _since_epoch(given: datetime) -> Decimal:
    if given.utcoffset() is None:
        raise BadArguments("the version is a datetime without a time zone: add it, such as .replace(tzinfo=UTC)")
    micros = (given - _EPOCH) // timedelta(microseconds=1)
    return Decimal(f"{micros}E-6")


def _read_time(text: str) -> Decimal:
    """Return seconds since 1970, exactly; a time without a zone is in UTC."""
    found = _TIME.fullmatch(text) if len(text) <= MAX_TEXT else None
    if found is None:
        raise _not_a_time(text)
    try:
        days = date.fromisoformat(found["date"]).toordinal() - _FIRST_DAY
    except ValueError:
        raise _not_a_time(text) from None
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    offset = _offset(found["zone"])
    if hour > 23 or minute > 59 or second > 60 or offset is None:  # a leap second is the next one
        raise _not_a_time(text)
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset
    fraction = found["fraction"] or ""
    return Decimal(f"{seconds * 10 ** len(fraction) + int(fraction or 0)}E-{len(fraction)}")


def _offset(zone: str | None) -> int | None:
    """Return the seconds by which a zone is ahead of UTC; None if there is no such zone."""
    if zone is None or zone in ("Z", "z", "UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        return None
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _not_a_time(text: str) -> BadArguments:
    if len(text) <= MAX_TEXT and _NUMBER.fullmatch(text):
        return BadArguments("the version is text that is a number: give event.newer the number, such as int(…)")
    return BadArguments(
        "the version is text, but not a time such as 2027-01-31T09:00:00Z: text has no order of versions; give "
        f"event.newer {TAKES}"
    )


def _position(number: Decimal) -> bytes:
    sign, digits, _ = number.as_tuple()
    text = "".join(map(str, digits)).strip("0")
    if not text:
        return b"\x80\x00"
    whole = number.adjusted() + 1  # digits before the point; negative for zeros after it
    fraction = max(0, len(text) - whole)
    if whole > MAX_DIGITS or fraction > MAX_DIGITS:
        raise _too_long()
    written = ("0" * -whole + text if whole < 0 else text.ljust(whole, "0")).encode()
    length = max(whole, 0)
    if sign:
        return bytes([127 - length]) + written.translate(_COMPLEMENT) + b"\xff"
    return bytes([128 + length]) + written + b"\x00"


def _too_long() -> BadArguments:
    return BadArguments(
        f"the version is a number of more than {MAX_DIGITS} digits, before or after the point: give a shorter one"
    )
