"""Versions become bytes that compare as they do; whatever is not a version is an error that says what to give."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hookledger.effects.version import MAX_DIGITS, MAX_PARTS, read_version
from hookledger.errors import BadArguments

BIG = 10**MAX_DIGITS - 1
numbers = st.one_of(
    st.integers(-BIG, BIG),
    st.integers(-1000, 1000),
    st.floats(-1e100, 1e100, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-90),
    st.decimals(-BIG, BIG, allow_nan=False, places=MAX_DIGITS),
    st.decimals("-1e9", "1e9", allow_nan=False, places=3),
)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))


def number(value: Any) -> Decimal:
    """What is compared, exactly: a float is the number that it is shown as."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def compared(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def positions(a: Any, b: Any) -> tuple[bytes, bytes]:
    one, two = read_version(a), read_version(b)
    assert one.kind == two.kind
    return one.position, two.position


# ── the order ────────────────────────────────────────────────────────────────


@given(numbers, numbers)
@example(0, -0.0)
@example(Decimal("1.50"), 1.5)
@example(9, 10)
@example(-9, -10)
@example(-1, Decimal("-1.5"))
@example(Decimal("0.05"), Decimal("0.5"))
@example(Decimal("-0.05"), Decimal("-0.5"))
@example(Decimal("0E+400"), Decimal("0E-400"))
@example(Decimal("1E+126"), 10**126)
@example(0.1, Decimal("0.1"))
@example(0.30000000000000004, 0.3)
@example(2**53, float(2**53))
def test_numbers_compare_by_value(a: Any, b: Any) -> None:
    assert compared(*positions(a, b)) == compared(number(a), number(b))


@given(st.lists(numbers, min_size=1, max_size=3), st.lists(numbers, min_size=1, max_size=3))
@example([1, 2], [1, -2])
@example([1, 0], [1.0, -0.5])
@example([-1, 9], [-1, 10])
@example([Decimal("1.5"), 1], [1, 9])
def test_tuples_compare_part_by_part(a: list[Any], b: list[Any]) -> None:
    size = min(len(a), len(b))
    a, b = a[:size], b[:size]
    assert compared(*positions(tuple(a), b)) == compared(list(map(number, a)), list(map(number, b)))


@given(moments, moments, st.integers(-23 * 60, 23 * 60))
def test_instants_compare_whatever_their_zone(a: datetime, b: datetime, minutes: int) -> None:
    moved = b.astimezone(timezone(timedelta(minutes=minutes)))
    for given_a in (a, a.isoformat(), a.isoformat(" ").replace("+00:00", "Z")):
        for given_b in (moved, moved.isoformat(), moved.isoformat(" ")):
            assert compared(*positions(given_a, given_b)) == compared(a, b)


@given(moments)
def test_a_time_without_a_zone_is_in_utc(at: datetime) -> None:
    bare = at.replace(tzinfo=None).isoformat()
    assert read_version(bare).position == read_version(at).position == read_version(f"{bare} UTC").position


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("2027-01-31T09:00:00.123456788Z", "2027-01-31T09:00:00.123456789Z"),  # beyond what datetime can hold
        ("2027-01-31T09:00:00.1234567", "2027-01-31T09:00:00.12345671"),
        (datetime(2027, 1, 31, 9, 0, 0, 123456, UTC), "2027-01-31T09:00:00.1234561Z"),
        ("1969-12-31T23:59:59.4Z", "1969-12-31T23:59:59.5Z"),
        ("2027-01-31T09:00:00+01:00", "2027-01-31T08:00:00.5Z"),
        ("2026-12-31T23:59:59Z", "2026-12-31T23:59:60Z"),  # a leap second
        ("2027-01-30", "2027-01-31T00:00:00.000001"),
        ("0001-01-01T00:00:00+23:59", "0001-01-01"),
        ((1, "2027-01-31T09:00:00Z"), (1, "2027-01-31T09:00:00.000000001Z")),
        (1.5, Decimal("1.50000000000000000001")),
        (2**63, 2**63 + 1),
    ],
    ids=str,
)
def test_less(less: Any, more: Any) -> None:
    one, two = positions(less, more)
    assert one < two


@pytest.mark.parametrize(
    "same",
    [
        ("2027-01-31T09:00:00Z", "2027-01-31t09:00:00.000z", "2027-01-31 10:00+01", "2027-01-31T04:30:00-0430"),
        ("2027-01-31T09:00:00,5+00:00", "2027-01-31 09:00:00.50 +0000", datetime(2027, 1, 31, 9, 0, 0, 500000, UTC)),
        ("2027-01-31", "2027-01-31T00:00", datetime(2027, 1, 31, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
        (1731, 1731.0, Decimal("1.731E+3"), (1731,), [1731]),
        (0, 0.0, -0.0, Decimal("-0.00")),
    ],
    ids=str,
)
def test_the_same(same: tuple[Any, ...]) -> None:
    assert len({read_version(value).position for value in same}) == 1


def test_the_size_is_bounded() -> None:
    longest = read_version([Decimal(f"-{BIG}.{'9' * MAX_DIGITS}")] * MAX_PARTS)
    assert len(longest.position) <= MAX_PARTS * (2 * MAX_DIGITS + 2)
    assert len(longest.text) <= 255


# ── kinds, and what people see ───────────────────────────────────────────────


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (1731, "number", "1731"),
        (1.5, "number", "1.5"),
        (Decimal("1.50"), "number", "1.50"),
        (Level.HIGH, "number", "3"),
        ("2027-01-31T09:00:00Z", "time", "2027-01-31T09:00:00Z"),
        (datetime(2027, 1, 31, 9, tzinfo=UTC), "time", "2027-01-31T09:00:00+00:00"),
        ((7, "2027-01-31"), "number,time", "(7, 2027-01-31)"),
        ([2, 3], "number,number", "(2, 3)"),
    ],
    ids=str,
)
def test_kind_and_text(given: Any, kind: str, text: str) -> None:
    read = read_version(given)
    assert (read.kind, read.text) == (kind, text)


# ── what is not a version ────────────────────────────────────────────────────

NESTED: Any = ()
for _ in range(5000):
    NESTED = (NESTED,)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (None, "no such field"),
        (True, "give event.newer"),
        (float("nan"), "finite"),
        (float("-inf"), "finite"),
        (Decimal("NaN"), "finite"),
        (Decimal("sNaN"), "finite"),
        (Decimal("Infinity"), "finite"),
        (datetime(2027, 1, 31), "tzinfo=UTC"),
        ("1731", "int(…)"),
        (" -17.31e5 ", "int(…)"),
        ("١٢٣", "ISO 8601"),
        ("", "ISO 8601"),
        ("v2", "ISO 8601"),
        ("2027-02-30T09:00:00Z", "ISO 8601"),
        ("0000-01-01", "ISO 8601"),
        ("2027-01-31T24:00:00Z", "ISO 8601"),
        ("2027-01-31T09:60:00Z", "ISO 8601"),
        ("2027-01-31T09:00:61Z", "ISO 8601"),
        ("2027-01-31T09:00:00+24:00", "ISO 8601"),
        ("2027-01-31T09:00:00Z\n", "ISO 8601"),
        ("2027-01-31T09:00:00Z\0", "ISO 8601"),
        ("2027-01-31T09:00:00\ud800", "ISO 8601"),
        ("2027-01-31T09:00:00." + "1" * 5000, "ISO 8601"),
        ("1" * 5000, "ISO 8601"),
        ("1e999999", "int(…)"),
        (10**MAX_DIGITS, "127 digits"),
        (-(10**5000), "127 digits"),
        (Decimal("1e999999"), "127 digits"),
        (Decimal("-1e999999"), "127 digits"),
        (Decimal("1e-999999"), "127 digits"),
        (Decimal("1e-128"), "127 digits"),
        (5e-324, "127 digits"),
        (1e300, "127 digits"),
        ((), "empty"),
        ([], "empty"),
        ((1, None), "no such field"),
        ((1, (2,)), "tuple"),
        (NESTED, "tuple"),
        (tuple(range(MAX_PARTS + 1)), "at most 8"),
        (b"1731", "bytes"),
        ({1: 2}, "dict"),
        (datetime(2027, 1, 31).date(), "date"),
        (1j, "complex"),
    ],
    ids=lambda value: ascii(value)[:40] if not isinstance(value, tuple | int) else type(value).__name__,
)
def test_what_is_not_a_version(given: Any, advice: str) -> None:
    with pytest.raises(BadArguments, match="the version") as raised:
        read_version(given)
    assert advice in str(raised.value)
    assert len(str(raised.value)) < 200


@given(st.one_of(st.text(), st.binary(), st.floats(), st.decimals(), st.lists(st.integers()), st.datetimes()))
def test_anything_is_a_version_or_an_error(value: Any) -> None:
    with contextlib.suppress(BadArguments):
        read_version(value)
