"""What differs between two contents of one key, in words and within bounds."""

from typing import Any

import pytest

from hookledger.operate.quarantine.difference import LONGEST, MOST, compare


@pytest.mark.parametrize(
    ("event", "delivery", "words"),
    [
        ({"a": 1}, {"a": 2}, ["a: 1 → 2"]),
        ({"a": 1}, {"a": True}, ["a: 1 → true"]),
        ({"a": 1}, {"a": 1.0}, ["a: 1 → 1.0"]),
        ({"a": None}, {}, ["a: removed null"]),
        ({}, {"a": None}, ["a: added null"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3, 4]}}, ["a.b[1]: 2 → 3", "a.b[2]: added 4"]),
        ({"a b": 1, "": 2}, {"a b": 2, "": 3}, ['["a b"]: 1 → 2', '[""]: 2 → 3']),
        ({"a": [1]}, {"a": {"b": 1}}, ['a: [1] → {"b": 1}']),
        ({"a": "\ud800"}, {"a": "é"}, ['a: "\\ud800" → "é"']),
        ([1], 2, ["the whole body: [1] → 2"]),
        ({"a": float("nan")}, {"a": float("nan")}, ["no field: only the bytes differ"]),
    ],
)
def test_what_differs(event: Any, delivery: Any, words: list[str]) -> None:
    assert compare(event, delivery).first() == words


def test_long_output_is_shortened() -> None:
    found = compare({}, {f"field_{n}": "x" * 10_000 for n in range(100)})
    assert (len(found.changes), found.more) == (MOST, 100 - MOST)
    assert all(len(change.delivery or "") == LONGEST for change in found.changes)
    assert found.first(3)[2:] == [f"field_2: added {found.changes[2].delivery}", "and 97 more"]


def test_volatile_fields_are_no_difference() -> None:
    event = {"pending_webhooks": 1, "data": {"sent": 1, "kept": 1}}
    delivery = {"pending_webhooks": 2, "data": {"sent": 2, "kept": 2}}
    volatile = frozenset({("pending_webhooks",), ("data", "sent")})
    assert compare(event, delivery, volatile=volatile).first() == ["data.kept: 1 → 2"]
