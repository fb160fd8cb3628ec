"""What an arrival is, once the unique constraint has spoken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookledger.errors import Unavailable
from hookledger.ids import new_id, quarantine_identity
from hookledger.model import Recorded
from hookledger.states import DeliveryOutcome, State
from hookledger.store.classify import Owner, classify, conflicts, first_state, proposals
from tests.builders import SOURCE, arrival, delivered, item
from tests.constraint import Constraint

ACCEPTED, DUPLICATE, CONFLICT = DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT
SAME_BODY, INVALID = DeliveryOutcome.SAME_BODY, DeliveryOutcome.INVALID


def test_proposals_are_sorted_and_the_first_of_each() -> None:
    one, two = delivered("a", unsigned=True), delivered("a", b"2", unsigned=True)
    found = proposals([one, two, delivered("b")])
    assert [p.identity for p in found] == sorted({p.identity for p in found})
    assert len(found) == 4
    [key] = [p for p in found if p.identity == one.items[0].identity]
    assert (key.kind, key.event_id, key.fingerprint) == ("key", one.event_ids[0], one.items[0].fingerprint)


def test_new_duplicate_conflict() -> None:
    constraint = Constraint()
    sent = delivered()
    assert constraint.record(sent) == [Recorded(ACCEPTED, sent.event_ids[0])]
    assert constraint.record(delivered()) == [Recorded(DUPLICATE, sent.event_ids[0], State.PENDING)]
    assert constraint.record(delivered(body=b"2")) == [Recorded(CONFLICT, sent.event_ids[0], State.PENDING)]


def test_invalid_and_skipped_are_new_events() -> None:
    bad, skipped = item("a", invalid="broken"), item("b", skip="filtered")
    outcomes = [r.outcome for r in Constraint().record(arrival(bad, skipped))]
    assert outcomes == [INVALID, ACCEPTED]
    assert first_state(bad) == (State.FAILED, "broken")
    assert first_state(skipped) == (State.SKIPPED, "filtered")
    assert first_state(item(review="old")) == (State.NEEDS_REVIEW, "old")
    assert first_state(item()) == (State.PENDING, None)


def test_same_body_owns_the_new_id_from_then_on() -> None:
    constraint = Constraint()
    first = delivered("1", b"x", unsigned=True)
    constraint.record(first)
    ident = first.event_ids[0]
    assert constraint.record(delivered("2", b"x", unsigned=True)) == [Recorded(SAME_BODY, ident, State.PENDING)]
    assert constraint.record(delivered("2", b"x", unsigned=True)) == [Recorded(DUPLICATE, ident, State.PENDING)]
    assert constraint.record(delivered("2", b"y", unsigned=True)) == [Recorded(CONFLICT, ident, State.PENDING)]
    # The body of a conflict is nobody's: under an id of its own it is an event.
    genuine = delivered("3", b"y", unsigned=True)
    assert constraint.record(genuine) == [Recorded(ACCEPTED, genuine.event_ids[0])]


def test_the_key_speaks_before_the_body() -> None:
    constraint = Constraint()
    one, two = delivered("1", b"x", unsigned=True), delivered("2", b"y", unsigned=True)
    constraint.record(one, two)
    # The key of the first with the body of the second: a conflict of the first.
    assert constraint.record(delivered("1", b"y", unsigned=True)) == [
        Recorded(CONFLICT, one.event_ids[0], State.PENDING)
    ]


def test_a_pruned_owner_has_no_state() -> None:
    sent, owner = delivered(), new_id()
    owners = {sent.items[0].identity: Owner(owner, sent.items[0].fingerprint)}
    assert [v.recorded for v in classify([sent], owners).verdicts] == [Recorded(DUPLICATE, owner, None)]


def test_a_key_from_elsewhere_takes_any_content() -> None:
    one, two, owner = delivered(body=b"1"), delivered(body=b"2"), new_id()
    owners = {one.items[0].identity: Owner(owner, b"")}
    assert conflicts([one, two], owners) == set()
    assert [v.recorded for v in classify([one, two], owners).verdicts] == [Recorded(DUPLICATE, owner, None)] * 2


def test_only_conflicts_are_looked_up_a_second_time() -> None:
    first, again, other = delivered(body=b"1"), delivered(body=b"1"), delivered(body=b"2")
    owners = {p.identity: Owner(p.event_id, p.fingerprint) for p in proposals([first])}
    content = other.items[0]
    wanted = quarantine_identity(SOURCE, content.identity, content.fingerprint)
    assert conflicts([first, again, delivered("new")], owners) == set()
    assert conflicts([first, again, other], owners) == {wanted}


def test_accepted_content_is_a_duplicate_of_its_event() -> None:
    constraint, admitted = Constraint(), new_id()
    first = delivered("1", b"x", unsigned=True)
    constraint.record(first, delivered("1", b"y", unsigned=True))
    constraint.admit("1", b"y", admitted)
    assert constraint.record(delivered("1", b"y", unsigned=True), delivered("1", b"x", unsigned=True)) == [
        Recorded(DUPLICATE, admitted, State.PENDING),
        Recorded(DUPLICATE, first.event_ids[0], State.PENDING),
    ]
    # The body that it brought is known under other ids from then on.
    assert constraint.record(delivered("2", b"y", unsigned=True)) == [Recorded(SAME_BODY, admitted, State.PENDING)]


def test_an_owner_that_vanished_is_not_guessed() -> None:
    with pytest.raises(Unavailable):
        classify([delivered()], {})


def test_the_owners_given_are_not_changed() -> None:
    first, second = delivered("1", b"x", unsigned=True), delivered("2", b"x", unsigned=True)
    owners = {p.identity: Owner(p.event_id, p.fingerprint) for p in proposals([first, second])}
    before = dict(owners)
    known = first.event_ids[0], first.items[0].fingerprint
    assert classify([first, second], owners).repoint == {second.items[0].identity: known}
    assert owners == before


KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"unsigned": True},
    {"unsigned": True, "type": "repeated", "repeats": True},
    *({"unsigned": True, "type": kind, "group": kind[0]} for kind in ("a1", "a2", "b1")),
    *({"token": token} for token in ("t1", "t2")),
)
deliveries = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([b"1", b"2", b"3"]), st.sampled_from(KINDS)))


@given(deliveries, st.data())
def test_batches_do_not_change_the_verdict(
    sent: list[tuple[str, bytes, dict[str, Any]]], data: st.DataObject
) -> None:
    """One at a time or many together: the same outcomes, of the same events."""
    arrivals = [delivered(key, body, **kind) for key, body, kind in sent]
    alone, together, admitted = Constraint(), Constraint(), new_id()
    for constraint in (alone, together):
        constraint.admit("a", b"2", admitted)
    one_by_one = [r for a in arrivals for r in alone.record(a)]
    grouped: list[Recorded] = []
    rest = list(arrivals)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        grouped += together.record(*rest[:size])
        rest = rest[size:]
    assert [(r.outcome, r.event_id) for r in grouped] == [(r.outcome, r.event_id) for r in one_by_one]
    assert alone.rows == together.rows
    # Every identity belongs to an event that exists.
    assert {o.event_id for o in together.rows.values()} <= together.events
