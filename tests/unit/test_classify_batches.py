"""Verdicts that depend on what came before them in the same batch."""

from __future__ import annotations

from uuid import UUID

from hookledger.ids import new_id
from hookledger.model import Arrival, Recorded
from hookledger.states import DeliveryOutcome, State
from hookledger.store.classify import Classification, Owner, classify, first_state, proposals
from tests.builders import delivered, item

ACCEPTED, DUPLICATE, CONFLICT = DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT
SAME_BODY = DeliveryOutcome.SAME_BODY


def sent(key: str, body: bytes) -> Arrival:
    return delivered(key, body, unsigned=True)


def judged(known: dict[bytes, Owner], *arrivals: Arrival) -> Classification:
    """With what is taken already; the rest goes to its first proposer."""
    return classify(arrivals, {p.identity: Owner(p.event_id, p.fingerprint) for p in proposals(arrivals)} | known)


def recorded(classification: Classification) -> list[Recorded]:
    return [verdict.recorded for verdict in classification.verdicts]


def owned(first: Arrival) -> dict[bytes, Owner]:
    """As after that arrival."""
    [content], [event_id] = first.items, first.event_ids
    owner = Owner(event_id, content.fingerprint, State.PROCESSED)
    assert content.body_identity is not None
    return {content.identity: owner, content.body_identity: owner}


def body(arrival: Arrival) -> bytes:
    found = arrival.items[0].body_identity
    assert found is not None
    return found


def owners(classification: Classification) -> dict[bytes, UUID]:
    return {identity: event_id for identity, (event_id, _) in classification.repoint.items()}


def test_same_body_then_a_conflict_under_the_new_id() -> None:
    first, same, other, genuine = sent("1", b"x"), sent("2", b"x"), sent("2", b"y"), sent("3", b"y")
    known = first.event_ids[0]
    classification = judged(owned(first), same, other)
    assert recorded(classification) == [
        Recorded(SAME_BODY, known, State.PROCESSED),
        Recorded(CONFLICT, known, State.PROCESSED),
    ]
    assert owners(classification) == {same.items[0].identity: known}
    assert classification.release == {body(other)}
    # The body of the conflict is nobody's, so its own delivery is an event.
    classification = judged(owned(first), same, other, genuine)
    assert recorded(classification)[2] == Recorded(ACCEPTED, genuine.event_ids[0])
    assert owners(classification) == {same.items[0].identity: known, body(genuine): genuine.event_ids[0]}
    assert classification.release == set()


def test_a_body_of_an_imported_key_then_a_conflict_under_the_new_id() -> None:
    """The key from elsewhere takes any content; an id that met its body afterwards takes only that."""
    imported, same, other = sent("1", b"x"), sent("2", b"x"), sent("2", b"y")
    elsewhere = Owner(new_id(), b"")
    classification = judged({imported.items[0].identity: elsewhere}, imported, same, other)
    known = elsewhere.event_id
    assert recorded(classification) == [
        Recorded(DUPLICATE, known),
        Recorded(SAME_BODY, known),
        Recorded(CONFLICT, known),
    ]
    assert owners(classification) == {body(imported): known, same.items[0].identity: known}
    assert classification.release == {body(other)}


def test_a_conflict_that_comes_twice_leaves_its_body_without_owner() -> None:
    first, one, two = sent("1", b"x"), sent("1", b"y"), sent("1", b"y")
    classification = judged(owned(first), one, two)
    assert [r.outcome for r in recorded(classification)] == [CONFLICT, CONFLICT]
    assert (owners(classification), classification.release) == ({}, {body(one)}), (
        "no identity of an event that is none"
    )
    genuine, again = sent("3", b"y"), sent("4", b"y")
    classification = judged(owned(first), one, two, genuine, again)
    known = genuine.event_ids[0]
    assert recorded(classification)[2:] == [Recorded(ACCEPTED, known), Recorded(SAME_BODY, known)]
    assert owners(classification) == {body(one): known, again.items[0].identity: known}
    assert classification.release == set()


def test_what_is_skipped_needs_nobodys_review() -> None:
    """A source that observes asks no person about what it would not run anyway."""
    assert first_state(item(skip="observed", review="old")) == (State.SKIPPED, "observed")
    assert first_state(item(invalid="broken", skip="observed", review="old")) == (State.FAILED, "broken")
