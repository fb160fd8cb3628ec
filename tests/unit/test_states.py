"""The table of states and transitions is complete and says what the design says."""

from __future__ import annotations

from typing import get_args, get_type_hints

from hookledger.model import Outcome
from hookledger.states import BY_NAME, FINAL, TRANSITIONS, WAITING, State

# The design's table: from each state, where one may go.
LEAVES = {
    State.PENDING: "processing skipped discarded",
    State.PROCESSING: "processed skipped retrying failed needs_review pending",
    State.RETRYING: "processing pending discarded",
    State.PROCESSED: "pending",
    State.SKIPPED: "pending",
    State.FAILED: "pending discarded",
    State.NEEDS_REVIEW: "pending discarded",
    State.DISCARDED: "pending",
}


def test_where_each_state_leads() -> None:  # proves R18
    for state in State:
        found = {t.target for t in TRANSITIONS if state in t.sources}
        assert found == {State(name) for name in LEAVES[state].split()}, state


def test_every_name_stands_once() -> None:
    assert len(BY_NAME) == len(TRANSITIONS)


def test_every_transition_has_a_sentence() -> None:
    assert all(t.sentence.endswith(".") and t.sources for t in TRANSITIONS)


def test_every_state_can_be_entered_and_left() -> None:
    assert {t.target for t in TRANSITIONS} == set(State)
    assert frozenset().union(*(t.sources for t in TRANSITIONS)) == set(State)


def test_only_a_claim_leads_to_processing() -> None:  # proves R18
    assert [t.name for t in TRANSITIONS if t.target is State.PROCESSING] == ["claim"]
    assert BY_NAME["claim"].sources == WAITING


def test_no_final_state_is_left_but_by_an_operator() -> None:  # proves R43
    assert {t.name for t in TRANSITIONS if t.sources & FINAL} == {"retry", "replay", "discard"}


def test_waiting_and_final_are_apart() -> None:
    assert not WAITING & FINAL
    assert set(State) - WAITING - FINAL == {State.PROCESSING, State.NEEDS_REVIEW}


def test_an_outcome_names_only_ways_out_of_processing() -> None:  # proves R18
    ways = set(get_args(get_type_hints(Outcome)["transition"]))
    assert ways == {t.name for t in TRANSITIONS if t.sources == {State.PROCESSING}} - {"rescue", "bury"}
