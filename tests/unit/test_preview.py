"""What a preview says, case by case; that it comes true is shown by tests/path/test_preview.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hookledger import ConfigError, Inbox
from hookledger.effects.declare import EffectDecorators
from hookledger.effects.model import Op
from hookledger.ids import effect_identity, new_id
from hookledger.ledger import Effect, EffectHistory
from hookledger.operate.context import Application
from hookledger.operate.replay.preview import (
    CANNOT_FORESEE,
    InReplay,
    Preview,
    Verdict,
    preview_replay,
)
from hookledger.states import AttemptOutcome, EffectKind, EffectState, KeyOrigin, Repeat, State
from hookledger.store.history import AttemptRow, EventRow, History, RequestRow
from hookledger.work.event import Event
from hookledger.work.route import Handler, Routes

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVENT = new_id()
ONCE, CALL, LATER = EffectKind.ONCE, EffectKind.CALL, EffectKind.LATER


def event(**other: Any) -> EventRow:
    values: dict[str, Any] = dict.fromkeys(EventRow.__struct_fields__) | {"version": ""}
    values |= {"id": EVENT, "source": "stripe", "type": "invoice.paid", "key": "evt_1", "state": State.PROCESSED}
    values |= {"key_origin": KeyOrigin.SIGNED_ID, "run": 1, "claim": 2, "first_processed_at": NOW}
    return EventRow(**values | other)


def effect(kind: EffectKind, state: EffectState, name: str = "charge", **other: Any) -> Effect:
    values: dict[str, Any] = dict.fromkeys(Effect.__struct_fields__)
    values |= {"identity": effect_identity("stripe", name, "k"), "kind": kind, "name": name, "key": "k"}
    values |= {"event_id": EVENT, "claim": 1, "repeat": None if kind is ONCE else Repeat.NEVER, "state": state}
    values |= {"generation": 1, "fence": 0 if kind is ONCE else 2, "expired": False, "lease_left": 0.0}
    values |= {"finished_at": NOW if state is EffectState.DONE else None, "unknown_for": 60.0}
    return Effect(**values | other)


async def provision(event: Event[Any]) -> None:
    """A handler."""


def charge(op: Op) -> None:
    """An effect, and its check."""


def application(
    *, converges: bool = True, handled: bool = True, checked: bool = False, ensures: bool = False, **policy: Any
) -> Application:
    """One with a handler and the effect `charge`, which is never repeated unless a policy is given."""
    routes, inbox = Routes(), EffectDecorators()
    replay: Any = "converges" if converges else None
    routes.add("stripe", "invoice.paid" if handled else "invoice.voided", Handler(provision, replay=replay))
    declared = (inbox.ensure() if ensures else inbox.effect(**policy or {"repeat": "never"}))(charge)
    if checked or ensures:
        declared.check(charge)
    return Application(routes, inbox.effects)


def request() -> RequestRow:
    values: dict[str, Any] = dict.fromkeys(RequestRow.__struct_fields__)
    return RequestRow(**values | {"id": UUID(int=1)})


def preview(
    *effects: Effect, app: Any = None, repeat: tuple[bytes, ...] = (), kept: bool = True, **other: Any
) -> Preview:
    attempts = (AttemptRow(1, 1, "w", NOW, NOW, AttemptOutcome.PROCESSED, None),)
    known = tuple(EffectHistory(one, ()) for one in effects)
    history = History(event(**other), request() if kept else None, (), attempts, known, ())
    return preview_replay(history, app or application(), repeat)


def test_safe() -> None:
    found = preview(effect(ONCE, EffectState.DONE, "credit"), effect(CALL, EffectState.DONE))
    assert (found.verdict, found.words, found.items) == (Verdict.SAFE, "safe", ())
    assert (found.run, found.handler, found.converges) == (2, "provision", True)
    assert found.reasons[-1] == CANNOT_FORESEE
    credit, charge = found.effects
    assert (credit.in_replay, credit.done_at, credit.claim, credit.run) == (InReplay.SKIPPED, NOW, 1, 1)
    assert (credit.idempotency_key, bool(charge.idempotency_key)) == (None, True)


# proves R45
@pytest.mark.parametrize(
    ("app", "other", "words"),
    [
        (application(converges=False), {}, "will do: what provision writes outside event.once, again"),
        (application(converges=False), {"first_processed_at": None, "state": State.FAILED}, "for the first time"),
        (application(), {"first_processed_at": None, "state": State.FAILED}, "what no run has reached yet"),
        (application(handled=False), {}, "no handler of this application handles 'invoice.paid'"),
        (Application(), {}, "will do: whatever its handler does outside the ledger, again"),
    ],
)
def test_never_safe_without_the_authors_word(app: Any, other: dict[str, Any], words: str) -> None:
    found = preview(effect(ONCE, EffectState.DONE, "credit"), app=app, **other)
    assert found.verdict is Verdict.WILL_DO
    assert words in found.words


def test_what_is_not_loaded_is_said() -> None:
    assert any("not loaded" in reason for reason in preview(app=Application()).reasons)


@pytest.mark.parametrize("state", [State.PENDING, State.PROCESSING, State.RETRYING])
def test_what_cannot_be_replayed(state: State) -> None:
    found = preview(state=state)
    assert found.verdict is Verdict.NEEDS_A_DECISION
    assert f"the event is {state}" in found.words
    assert "not kept" in preview(kept=False).words


KEYED = {"repeat": "keyed", "window": "45s", "timeout": "10s", "grace": "5s"}
"""A call may be repeated until 30 s after the first: the next must be over within the window."""
LOST = {"error": "its result was lost"}
DUE = {"due_at": NOW}
CASES: list[tuple[EffectKind, EffectState, dict[str, Any], dict[str, Any], InReplay]] = [
    (CALL, EffectState.PLANNED, {}, {}, InReplay.HAPPENS),
    (CALL, EffectState.FAILED, {}, {}, InReplay.HAPPENS),
    (CALL, EffectState.FAILED, {}, {"ensures": True}, InReplay.CHECKED),
    (CALL, EffectState.STARTED, {"lease_left": 5.0}, {}, InReplay.UNDECIDED),
    (CALL, EffectState.STARTED, {"expired": True}, {"repeat": "safe"}, InReplay.HAPPENS),
    (CALL, EffectState.UNKNOWN, {}, {}, InReplay.UNDECIDED),
    (CALL, EffectState.UNKNOWN, {}, {"checked": True}, InReplay.CHECKED),
    (CALL, EffectState.UNKNOWN, {"unknown_for": 29.0}, KEYED, InReplay.HAPPENS),
    (CALL, EffectState.UNKNOWN, {"unknown_for": 31.0}, KEYED, InReplay.UNDECIDED),
    (CALL, EffectState.DONE, {"alert": "done twice"}, {}, InReplay.UNDECIDED),
    (CALL, EffectState.DONE, LOST, {}, InReplay.UNDECIDED),
    (LATER, EffectState.DONE, LOST, {}, InReplay.SKIPPED),
    (LATER, EffectState.PLANNED, DUE, {}, InReplay.OUTBOX),
    (LATER, EffectState.STARTED, {"lease_left": 5.0}, {}, InReplay.OUTBOX),
    (LATER, EffectState.UNKNOWN, {}, {"checked": True}, InReplay.UNDECIDED),
    (LATER, EffectState.UNKNOWN, DUE, {}, InReplay.OUTBOX),
    (LATER, EffectState.FAILED, {}, {}, InReplay.STAYS),
    (LATER, EffectState.CANCELLED, {}, {}, InReplay.SKIPPED),
]


@pytest.mark.parametrize(("kind", "state", "other", "facts", "fate"), CASES)
def test_each_fate(
    kind: EffectKind, state: EffectState, other: dict[str, Any], facts: dict[str, Any], fate: InReplay
) -> None:
    found = preview(effect(kind, state, **other), app=application(**facts))
    [forecast] = found.effects
    assert forecast.in_replay is fate
    expected = {
        InReplay.UNDECIDED: Verdict.NEEDS_A_DECISION,
        InReplay.SKIPPED: Verdict.SAFE,
        InReplay.STAYS: Verdict.SAFE,
    }
    assert found.verdict is expected.get(fate, Verdict.WILL_DO)
    assert (found.verdict is Verdict.SAFE) or forecast.label in found.words
    if fate is InReplay.STAYS:
        assert any("does not send it again" in reason for reason in found.reasons)


def test_unknown_without_the_application_is_undecided() -> None:
    [forecast] = preview(effect(CALL, EffectState.UNKNOWN, repeat=Repeat.SAFE), app=Application()).effects
    assert forecast.in_replay is InReplay.UNDECIDED


def test_a_repetition_is_named() -> None:
    once, call = effect(ONCE, EffectState.DONE, "credit"), effect(CALL, EffectState.DONE)
    found = preview(once, call, repeat=(once.identity, call.identity))
    assert found.words == (
        "will do: credit:k once more, as decided; charge:k once more, as decided, under a new idempotency key"
    )
    [forecast] = preview(call, app=application(ensures=True), repeat=(call.identity,)).effects
    assert forecast.in_replay is InReplay.CHECKED
    loud = effect(CALL, EffectState.DONE, alert="done twice")
    assert preview(loud, repeat=(loud.identity,)).verdict is Verdict.NEEDS_A_DECISION


def test_the_authors_word_is_one_word() -> None:
    inbox = Inbox("sqlite:///never.db")
    source = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up"])
    with pytest.raises(ConfigError, match="converges"):
        source.on("invoice.paid", replay="sure")  # type: ignore[call-overload]


def test_what_made_way_is_open_until_it_was_done_again() -> None:
    old = effect(ONCE, EffectState.DONE, "credit", fence=1, identity=b"aside")
    new = effect(ONCE, EffectState.DONE, "credit")
    [forecast] = preview(old).effects
    assert (forecast.in_replay, preview(old).verdict) == (InReplay.HAPPENS, Verdict.WILL_DO)
    [forecast] = preview(old, new).effects
    assert (forecast.in_replay, forecast.identity) == (InReplay.SKIPPED, new.identity.hex())


def test_more_than_can_be_shown_is_not_called_safe() -> None:
    many = [effect(ONCE, EffectState.DONE, f"n{number}") for number in range(500)]
    assert preview(*many[:499]).verdict is Verdict.SAFE
    assert "beyond the first 500" in preview(*many).words


def test_it_can_be_sent_as_json() -> None:
    found = preview(effect(CALL, EffectState.DONE))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Preview) == found
