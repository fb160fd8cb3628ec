"""Lanes take turns."""

from __future__ import annotations

from typing import Any

from hookledger.ledger import Effect
from hookledger.store.lanes import Turns


def effect(name: str, lane: str | None) -> Effect:
    given: dict[str, Any] = dict.fromkeys(Effect.__struct_fields__)
    return Effect(**given | {"name": name, "lane": lane})


def test_the_next_claim_begins_behind_the_last_lane() -> None:
    turns = Turns()
    assert turns.begin("n") == ""
    assert turns.left([("n", 2, 1.0)], [effect("n", "b"), effect("n", "a")]) == []
    assert "b" < turns.begin("n") <= "b\x01"
    assert turns.begin("other") == ""


def test_goes_round_once_for_what_is_still_wanted() -> None:
    turns = Turns()
    turns.left([("n", 1, 1.0)], [effect("n", "m")])
    assert turns.left([("n", 3, 1.0)], [effect("n", "x")]) == [("n", 2, 1.0)]
    assert turns.begin("n") == ""
    assert turns.left([("n", 2, 1.0)], [effect("n", "c")]) == [], "the whole round was made"
    assert turns.begin("n") == "c\x01"


def test_what_is_in_no_lane_has_no_turn() -> None:
    turns = Turns()
    assert turns.left([("n", 5, 1.0)], [effect("n", None)]) == []
    assert turns.begin("n") == ""
