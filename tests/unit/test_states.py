"""The table of states and transitions is complete and says what the design says."""

from __future__ import annotations

from typing import get_args, get_type_hints

from hookledger.model import Outcome
from hookledger.states import BY_NAME, EFFECT_TRANSITIONS, FINAL, TRANSITIONS, WAITING, EffectState, State

# The design's table: from each state, where one may go.
LEAVES = {
    State.PENDING: "processing skipped discarded",
    State.PROCESSING: "processed skipped retrying failed needs_review pending",
    State.RETRYING: "processing pending discarded",
    State.PROCESSED: "pending",
    State.SKIPPED: "pending",
    State.FAILED: "pending discarded",
    State.NEEDS_REVIEW: "pending processed discarded",
    State.DISCARDED: "pending",
}


def test_where_each_state_leads() -> None:
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


def test_only_a_claim_leads_to_processing() -> None:
    assert [t.name for t in TRANSITIONS if t.target is State.PROCESSING] == ["claim"]
    assert BY_NAME["claim"].sources == WAITING


def test_no_final_state_is_left_but_by_an_operator() -> None:
    assert {t.name for t in TRANSITIONS if t.sources & FINAL} == {"retry", "replay", "discard"}


def test_waiting_and_final_states_are_disjoint() -> None:
    assert not WAITING & FINAL
    assert set(State) - WAITING - FINAL == {State.PROCESSING, State.NEEDS_REVIEW}


def test_an_outcome_names_only_ways_out_of_processing() -> None:
    ways = set(get_args(get_type_hints(Outcome)["transition"]))
    assert ways == {t.name for t in TRANSITIONS if t.sources == {State.PROCESSING}} - {"reclaim", "dead_letter"}


# ── effects ──────────────────────────────────────────────────────────────────

# From each state, where one may go. Evidence that it happened beats whatever was thought before.
EFFECT_LEAVES = {
    EffectState.PLANNED: "planned started done cancelled",
    EffectState.STARTED: "done planned failed unknown",
    EffectState.UNKNOWN: "started done planned failed",
    EffectState.FAILED: "started done planned cancelled",
    EffectState.DONE: "planned",
    EffectState.CANCELLED: "done planned",
}


def test_where_each_effect_leads() -> None:
    for state in EffectState:
        found = {t.target for t in EFFECT_TRANSITIONS if state in t.sources}
        assert found == {EffectState(name) for name in EFFECT_LEAVES[state].split()}, state


def test_what_is_done_stays_done() -> None:
    """Unless only a decision says that it is (see `decide`), or a person decides to repeat it."""
    assert [t.name for t in EFFECT_TRANSITIONS if EffectState.DONE in t.sources] == ["reopen", "repeat"]


def test_effects_begin_in_three_ways() -> None:
    assert {t.target.value for t in EFFECT_TRANSITIONS if not t.sources} == {"planned", "done", "started"}
    assert len({t.name for t in EFFECT_TRANSITIONS}) == len(EFFECT_TRANSITIONS)
    assert all(t.sentence.endswith(".") for t in EFFECT_TRANSITIONS)


def test_an_unknown_effect_can_be_settled_every_way() -> None:
    assert {t.target for t in EFFECT_TRANSITIONS if EffectState.UNKNOWN in t.sources} >= {
        EffectState.DONE,
        EffectState.PLANNED,
    }
    assert [t.name for t in EFFECT_TRANSITIONS if t.target is EffectState.UNKNOWN] == ["mark_unknown"]
