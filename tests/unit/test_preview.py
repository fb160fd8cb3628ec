"""What a preview says, case by case; that it comes true is shown by tests/path/test_preview.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hookledger import ConfigError, Inbox
from hookledger.identities import effect_identity, new_id
from hookledger.ledger import Effect, EffectHistory
from hookledger.model import AttemptRow, EventRow, History, RequestRow
from hookledger.operate.preview import (
    CANNOT_FORESEE,
    EffectFacts,
    Fate,
    HandlerFacts,
    NothingDeclared,
    Preview,
    Verdict,
    foresee,
)
from hookledger.states import AttemptOutcome, EffectKind, EffectState, KeyOrigin, Repeat, State

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVENT = new_id()
ONCE, CALL, LATER = EffectKind.ONCE, EffectKind.CALL, EffectKind.LATER


def event(**other: Any) -> EventRow:
    values: dict[str, Any] = dict.fromkeys(EventRow.__struct_fields__)
    values |= {"id": EVENT, "source": "stripe", "type": "invoice.paid", "key": "evt_1", "state": State.PROCESSED}
    values |= {"key_origin": KeyOrigin.SIGNED_ID, "run": 1, "claim": 2, "first_processed_at": NOW}
    return EventRow(**values | other)


def effect(kind: EffectKind, state: EffectState, name: str = "charge", **other: Any) -> Effect:
    values: dict[str, Any] = dict.fromkeys(Effect.__struct_fields__)
    values |= {"identity": effect_identity("stripe", name, "k"), "kind": kind, "name": name, "key": "k"}
    values |= {"event_id": EVENT, "claim": 1, "repeat": None if kind is ONCE else Repeat.NEVER, "state": state}
    values |= {"generation": 1, "fence": 0 if kind is ONCE else 2, "expired": False, "lease_left": 0.0}
    values |= {"finished_at": NOW if state is EffectState.DONE else None, "doubtful_for": 60.0}
    return Effect(**values | other)


class Application:
    loaded = True
    advice = ()

    def __init__(self, *, converges: bool = True, handled: bool = True, **effects: Any) -> None:
        self._handler = HandlerFacts("provision", converges) if handled else None
        values: dict[str, Any] = {"may_repeat": lambda _: False, "readable": lambda _: True}
        values |= {"checked": False, "asks_first": False}
        self._facts = EffectFacts(**values | effects)

    def handler(self, source: str, kind: str) -> HandlerFacts | None:
        assert (source, kind) == ("stripe", "invoice.paid")
        return self._handler

    def effect(self, name: str) -> EffectFacts | None:
        return self._facts if name == "charge" else None


def request() -> RequestRow:
    values: dict[str, Any] = dict.fromkeys(RequestRow.__struct_fields__)
    return RequestRow(**values | {"id": UUID(int=1)})


def preview(
    *effects: Effect, app: Any = None, repeat: tuple[bytes, ...] = (), kept: bool = True, **other: Any
) -> Preview:
    attempts = (AttemptRow(1, 1, "w", NOW, NOW, AttemptOutcome.PROCESSED, None),)
    known = tuple(EffectHistory(one, ()) for one in effects)
    history = History(event(**other), request() if kept else None, (), attempts, known, ())
    return foresee(history, app or Application(), repeat)


def test_safe() -> None:  # proves R45, R50
    found = preview(effect(ONCE, EffectState.DONE, "credit"), effect(CALL, EffectState.DONE))
    assert (found.verdict, found.words, found.deeds) == (Verdict.SAFE, "safe", ())
    assert (found.run, found.handler, found.converges) == (2, "provision", True)
    assert found.reasons[-1] == CANNOT_FORESEE
    credit, charge = found.effects
    assert (credit.fate, credit.done_at, credit.claim, credit.run) == (Fate.SKIPPED, NOW, 1, 1)
    assert (credit.idempotency_key, bool(charge.idempotency_key)) == (None, True)


@pytest.mark.parametrize(
    ("app", "other", "words"),
    [
        (Application(converges=False), {}, "will do: what provision writes outside event.once, again"),
        (Application(converges=False), {"first_processed_at": None, "state": State.FAILED}, "for the first time"),
        (Application(), {"first_processed_at": None, "state": State.FAILED}, "what no run has reached yet"),
        (Application(handled=False), {}, "no handler of this application takes 'invoice.paid'"),
        (NothingDeclared(), {}, "will do: whatever its handler does outside the ledger, again"),
    ],
)
def test_never_safe_without_the_authors_word(app: Any, other: dict[str, Any], words: str) -> None:  # proves R45
    found = preview(effect(ONCE, EffectState.DONE, "credit"), app=app, **other)
    assert found.verdict is Verdict.WILL_DO
    assert words in found.words


def test_what_is_not_loaded_is_said() -> None:  # proves R45
    assert any("not loaded" in reason for reason in preview(app=NothingDeclared()).reasons)


@pytest.mark.parametrize("state", [State.PENDING, State.PROCESSING, State.RETRYING])
def test_what_cannot_be_replayed(state: State) -> None:  # proves R43
    found = preview(state=state)
    assert found.verdict is Verdict.NEEDS_A_DECISION
    assert f"the event is {state}" in found.words
    assert "not kept" in preview(kept=False).words


LONG_AGO = {"may_repeat": lambda doubtful_for: doubtful_for < 30}
DUE = {"due_at": NOW}
CASES: list[tuple[EffectKind, EffectState, dict[str, Any], dict[str, Any], Fate]] = [
    (CALL, EffectState.PLANNED, {}, {}, Fate.HAPPENS),
    (CALL, EffectState.FAILED, {}, {}, Fate.HAPPENS),
    (CALL, EffectState.FAILED, {}, {"asks_first": True}, Fate.CHECKED),
    (CALL, EffectState.STARTED, {"lease_left": 5.0}, {}, Fate.UNDECIDED),
    (CALL, EffectState.STARTED, {"expired": True}, {"may_repeat": lambda _: True}, Fate.HAPPENS),
    (CALL, EffectState.UNKNOWN, {}, {}, Fate.UNDECIDED),
    (CALL, EffectState.UNKNOWN, {}, {"checked": True}, Fate.CHECKED),
    (CALL, EffectState.UNKNOWN, {"doubtful_for": 29.0}, LONG_AGO, Fate.HAPPENS),
    (CALL, EffectState.UNKNOWN, {"doubtful_for": 31.0}, LONG_AGO, Fate.UNDECIDED),
    (CALL, EffectState.DONE, {"alert": "done twice"}, {}, Fate.UNDECIDED),
    (CALL, EffectState.DONE, {}, {"readable": lambda _: False}, Fate.UNDECIDED),
    (LATER, EffectState.DONE, {}, {"readable": lambda _: False}, Fate.SKIPPED),
    (LATER, EffectState.PLANNED, DUE, {}, Fate.OUTBOX),
    (LATER, EffectState.STARTED, {"lease_left": 5.0}, {}, Fate.OUTBOX),
    (LATER, EffectState.UNKNOWN, {}, {"checked": True}, Fate.UNDECIDED),
    (LATER, EffectState.UNKNOWN, DUE, {}, Fate.OUTBOX),
    (LATER, EffectState.FAILED, {}, {}, Fate.STAYS),
    (LATER, EffectState.CANCELLED, {}, {}, Fate.SKIPPED),
]


@pytest.mark.parametrize(("kind", "state", "other", "facts", "fate"), CASES)
def test_each_fate(
    kind: EffectKind, state: EffectState, other: dict[str, Any], facts: dict[str, Any], fate: Fate
) -> None:  # proves R45
    found = preview(effect(kind, state, **other), app=Application(**facts))
    [forecast] = found.effects
    assert forecast.fate is fate
    expected = {Fate.UNDECIDED: Verdict.NEEDS_A_DECISION, Fate.SKIPPED: Verdict.SAFE, Fate.STAYS: Verdict.SAFE}
    assert found.verdict is expected.get(fate, Verdict.WILL_DO)
    assert (found.verdict is Verdict.SAFE) or forecast.label in found.words
    if fate is Fate.STAYS:
        assert any("does not send it again" in reason for reason in found.reasons)


def test_unknown_without_the_application_is_undecided() -> None:  # proves R45
    [forecast] = preview(effect(CALL, EffectState.UNKNOWN, repeat=Repeat.SAFE), app=NothingDeclared()).effects
    assert forecast.fate is Fate.UNDECIDED


def test_a_repetition_is_named() -> None:  # proves R45, R47
    once, call = effect(ONCE, EffectState.DONE, "credit"), effect(CALL, EffectState.DONE)
    found = preview(once, call, repeat=(once.identity, call.identity))
    assert found.words == (
        "will do: credit:k once more, as decided; charge:k once more, as decided, under a new idempotency key"
    )
    [forecast] = preview(call, app=Application(asks_first=True), repeat=(call.identity,)).effects
    assert forecast.fate is Fate.CHECKED
    loud = effect(CALL, EffectState.DONE, alert="done twice")
    assert preview(loud, repeat=(loud.identity,)).verdict is Verdict.NEEDS_A_DECISION


def test_the_authors_word_is_one_word() -> None:
    inbox = Inbox("sqlite:///never.db")
    source = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up"])
    with pytest.raises(ConfigError, match="converges"):
        source.on("invoice.paid", replay="sure")  # type: ignore[arg-type]


def test_what_made_way_is_open_until_it_was_done_again() -> None:  # proves R45, R47
    old = effect(ONCE, EffectState.DONE, "credit", fence=1, identity=b"aside")
    new = effect(ONCE, EffectState.DONE, "credit")
    [forecast] = preview(old).effects
    assert (forecast.fate, preview(old).verdict) == (Fate.HAPPENS, Verdict.WILL_DO)
    [forecast] = preview(old, new).effects
    assert (forecast.fate, forecast.identity) == (Fate.SKIPPED, new.identity.hex())


def test_more_than_can_be_shown_is_not_called_safe() -> None:  # proves R45
    many = [effect(ONCE, EffectState.DONE, f"n{number}") for number in range(500)]
    assert preview(*many[:499]).verdict is Verdict.SAFE
    assert "beyond the first 500" in preview(*many).words


def test_it_can_be_sent_as_json() -> None:
    found = preview(effect(CALL, EffectState.DONE))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Preview) == found
