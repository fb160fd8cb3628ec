"""What the end of a call, or a person's word, means for its effect: every combination, against the rules in prose."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from hookledger.errors import WrongState
from hookledger.ids import new_id
from hookledger.ledger import Completion, Effect
from hookledger.states import EFFECT_TRANSITIONS, CallOutcome, EffectKind, EffectState, Repeat
from hookledger.store.call_outcome import (
    DECISIONS,
    CallEnd,
    Move,
    Standing,
    apply_outcome,
    calls_for_attention,
    decide,
)

CALL, LATER = EffectKind.CALL, EffectKind.LATER
PLANNED, STARTED, FINISHED = EffectState.PLANNED, EffectState.STARTED, EffectState.DONE
FAILED, UNKNOWN, CANCELLED = EffectState.FAILED, EffectState.UNKNOWN, EffectState.CANCELLED
DONE, REFUSED, DOUBT = CallOutcome.DONE, CallOutcome.REFUSED, CallOutcome.UNKNOWN

AT = datetime(2025, 11, 15, 10, 53, 2, tzinfo=UTC)
LEGAL = {(source, t.target) for t in EFFECT_TRANSITIONS for source in t.sources}
OUTCOMES = (None, *CallOutcome)


class Case:
    """One call ends: the effect before, how its other call stands, what the ended call says."""

    def __init__(
        self,
        kind: EffectKind,
        repeat: Repeat,
        state: EffectState,
        decided: tuple[str, int] | None,
        mine: int,
        outcome: CallOutcome,
        other: CallOutcome | None,
        due_in: float | None,
    ) -> None:
        self.effect = Standing(kind, repeat, state, 2, *(decided or (None, None)))
        self.mine, self.outcome, self.other, self.due_in = mine, outcome, other, due_in
        self.present = state is STARTED and mine == 2
        self.denied = decided is not None and decided[0] == "did_not_happen" and mine <= decided[1]
        other_denied = decided is not None and decided[0] == "did_not_happen" and 3 - mine <= decided[1]
        self.other_doubtful = other in (None, DOUBT) and not other_denied
        self.other_done = other is DONE

    def apply_outcome(self) -> Move | None:
        calls = [CallEnd(self.mine, self.outcome), CallEnd(3 - self.mine, self.other)]
        completion = Completion(bytes(32), self.mine, self.outcome, b"1", "why", self.due_in)
        return apply_outcome(self.effect, calls, completion, AT)

    def __repr__(self) -> str:
        return f"{self.effect}, call {self.mine} {self.outcome}, the other {self.other}, due in {self.due_in}"


def cases() -> Iterator[Case]:
    """Two calls were made, 1 and 2; 2 is the newest. One of them ends."""
    decisions = (None, ("happened", 2), ("did_not_happen", 1), ("did_not_happen", 2))
    for values in product((CALL, LATER), Repeat, EffectState, decisions, (1, 2), CallOutcome, OUTCOMES, (None, 30.0)):
        yield Case(*values)


def expected(case: Case) -> tuple[EffectState, bool] | None:
    """(state, whether an operator is alerted), or None for "nothing changes", as the rules say it."""
    state, later = case.effect.state, case.effect.kind is LATER
    decided = case.effect.decided
    if case.outcome is DONE:
        if state is STARTED and case.present:
            return FINISHED, False
        if state is STARTED:
            return STARTED, case.denied
        if state is UNKNOWN:
            return FINISHED, case.denied
        if state in (PLANNED, FAILED):
            return FINISHED, True
        if state is CANCELLED:
            return CANCELLED, True
        if case.denied:
            return FINISHED, True
        if decided == "happened":
            return FINISHED, False
        return (FINISHED, True) if case.effect.repeat is Repeat.NEVER else None
    if case.outcome is REFUSED:
        if case.present or state is UNKNOWN:
            if case.other_done:
                return FINISHED, False
            if case.other_doubtful:
                return (UNKNOWN, False) if case.present else None
            return (PLANNED if later and case.due_in is not None else FAILED), False
        if state is FINISHED and decided == "happened" and not case.other_done and not case.other_doubtful:
            return FINISHED, True
        return None
    if case.present:
        return (FINISHED if case.other_done else UNKNOWN), False
    return None


def test_every_combination() -> None:
    seen = 0
    for case in cases():
        move, wanted = case.apply_outcome(), expected(case)
        assert (move and (move.state, move.alert is not None)) == wanted, case
        seen += 1
    assert seen == 2 * 4 * 6 * 4 * 2 * 3 * 4 * 2


def test_every_move_is_in_the_table_of_transitions() -> None:
    for case in cases():
        move = case.apply_outcome()
        if move is not None and move.state is not case.effect.state:
            assert (case.effect.state, move.state) in LEGAL, case


def test_nothing_that_came_back_done_is_left_to_be_done_again() -> None:
    for case in cases():
        move = case.apply_outcome()
        after = move.state if move else case.effect.state
        if case.outcome is DONE:
            # Cancelled is not called either; while a newer call is under way, its end finds this one done.
            assert after in (FINISHED, CANCELLED, STARTED), case
            assert after is not STARTED or case.effect.state is STARTED, case


def test_only_an_unknown_call_keeps_its_effect_from_being_retried() -> None:
    for case in cases():
        move = case.apply_outcome()
        if move is not None and move.state in (PLANNED, FAILED):
            assert case.outcome is REFUSED
            assert not case.other_done, case
            assert not case.other_doubtful, case


def test_what_is_decided_against_evidence_alerts() -> None:
    for case in cases():
        if case.outcome is DONE and case.denied and not case.present:
            move = case.apply_outcome()
            assert move is not None, case
            assert move.alert is not None, case
            assert move.alert.startswith(f"call {case.mine} came back done at 2025-11-15 10:53:02 UTC"), case


def test_times_and_errors_go_along() -> None:
    for case in cases():
        move = case.apply_outcome()
        if move is None:
            continue
        if move.state in (PLANNED, UNKNOWN):
            assert move.error == "why", case
            assert move.due_in == case.due_in, case
        if case.outcome is DONE:
            assert move.result == b"1", case


def test_attention_is_looked_at_whenever_it_may_change() -> None:
    """A mirror of the stores' condition, for one effect: with and without it before and after."""

    def wanted(kind: EffectKind, state: EffectState, due: bool, alert: bool) -> bool:
        if kind is CALL:
            return alert or state is UNKNOWN
        return alert or state is FAILED or (state is UNKNOWN and not due)

    for case in cases():
        move = case.apply_outcome()
        if move is None or calls_for_attention(case.effect, move):
            continue
        for due in (False, True):
            before = wanted(case.effect.kind, case.effect.state, due, False)
            after = wanted(case.effect.kind, move.state, move.due_in is not None, move.alert is not None)
            assert not before, case
            assert not after, case


def test_a_result_that_is_missing_is_filled_in() -> None:
    told = [CallEnd(1, DONE)]
    missing = Standing(CALL, Repeat.NEVER, FINISHED, 1, "happened", 1)
    assert apply_outcome(missing, told, Completion(bytes(32), 1, DONE, b"7"), AT) == Move(FINISHED, b"7")
    assert apply_outcome(missing, told, Completion(bytes(32), 1, DONE), AT) is None
    assert apply_outcome(missing._replace(result=b"6"), told, Completion(bytes(32), 1, DONE, b"7"), AT) is None


# ── decisions ────────────────────────────────────────────────────────────────


def effect(**values: Any) -> Effect:
    given: dict[str, Any] = dict.fromkeys(Effect.__struct_fields__)
    return Effect(**given | {"name": "charge", "key": "k", "event_id": new_id(), "arguments": b"{}"} | values)


DECIDED: dict[tuple[EffectState, str, bool], EffectState] = {
    **{(UNKNOWN, "happened", alert): FINISHED for alert in (False, True)},
    **{(FAILED, "happened", alert): FINISHED for alert in (False, True)},
    **{(PLANNED, "happened", alert): FINISHED for alert in (False, True)},
    **{(UNKNOWN, "did_not_happen", alert): PLANNED for alert in (False, True)},
    **{(FAILED, "did_not_happen", alert): PLANNED for alert in (False, True)},
    **{(PLANNED, "cancel", alert): CANCELLED for alert in (False, True)},
    **{(FAILED, "cancel", alert): CANCELLED for alert in (False, True)},
    (FINISHED, "happened", True): FINISHED,
    (FINISHED, "did_not_happen", True): FINISHED,
    (CANCELLED, "happened", True): FINISHED,
    (CANCELLED, "cancel", True): CANCELLED,
}


@pytest.mark.parametrize("kind", [CALL, LATER])
def test_every_decision(kind: EffectKind) -> None:
    for state, decision, alert in product(EffectState, DECISIONS, (False, True)):
        known = effect(kind=kind, state=state, alert="look" if alert else None)
        target = DECIDED.get((state, decision, alert))
        if kind is CALL and decision == "cancel" and state is not CANCELLED:
            target = None
        if target is None:
            with pytest.raises(WrongState):
                decide(known, decision)
        else:
            assert decide(known, decision) is target, (state, decision, alert)
            assert target is state or (state, target) in LEGAL


def test_a_decision_while_a_call_is_in_flight() -> None:
    with pytest.raises(WrongState, match="in progress"):
        decide(effect(kind=CALL, state=STARTED), "happened")


def test_a_result_that_was_forgotten_can_be_given() -> None:
    known = effect(kind=CALL, state=FINISHED)
    assert decide(known, "happened", b"1") is FINISHED
    said = effect(kind=CALL, state=FINISHED, result=b"0", decided="happened")
    assert decide(said, "happened", b"1") is FINISHED, "a person's own can be corrected"
    for refused in (effect(kind=CALL, state=FINISHED, result=b"0"), effect(kind=EffectKind.ONCE, state=FINISHED)):
        with pytest.raises(WrongState):
            decide(refused, "happened", b"1")
    with pytest.raises(WrongState):
        decide(known, "did_not_happen", b"1")


@pytest.mark.parametrize("kind", [CALL, LATER])
def test_a_wrong_decision_is_reversed(kind: EffectKind) -> None:
    said = effect(kind=kind, state=FINISHED, alert="refused", decided="happened")
    assert decide(said, "did_not_happen") is PLANNED
    assert decide(said, "happened") is FINISHED
    for decided, done in (("happened", True), ("did_not_happen", True), (None, True)):
        twice = effect(kind=kind, state=FINISHED, alert="twice", decided=decided, called_done=done)
        assert decide(twice, "did_not_happen") is FINISHED
    with pytest.raises(WrongState):
        decide(effect(kind=kind, state=FINISHED, decided="happened"), "did_not_happen")


def test_a_word_that_is_no_decision() -> None:
    with pytest.raises(ValueError, match="perhaps"):
        decide(effect(kind=CALL, state=UNKNOWN), "perhaps")


def test_what_was_erased_cannot_be_done_again() -> None:
    for kind, state in product((CALL, LATER), (UNKNOWN, FAILED)):
        known = effect(kind=kind, state=state, arguments=b"")
        assert decide(known, "happened") is FINISHED
        if kind is LATER:
            with pytest.raises(WrongState, match="arguments of effect charge:k were erased"):
                decide(known, "did_not_happen")
        else:
            assert decide(known, "did_not_happen") is PLANNED, "its handler brings them along"
