"""Decides what each arrival is, once the unique constraint has spoken.

Pure: both stores insert the identities, look up who owns those that they did
not win, and then ask here. Duplicates inside one batch meet the same rules as
duplicates of what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from ..errors import Unavailable
from ..identities import admitted_identity
from ..model import Arrival, Item, Recorded
from ..states import DeliveryOutcome, State

# Asked of their classes each time, members cost a call.
_ACCEPTED, _PENDING = DeliveryOutcome.ACCEPTED, State.PENDING
AS_LISTED = b"api"
"""The fingerprint of an identity that a provider's log gave: its delivery may be written in any way."""


class Owner(NamedTuple):
    """The event that an identity belongs to."""

    event_id: UUID
    fingerprint: bytes
    """Empty where the key came from elsewhere: whatever content it brings was processed there."""
    state: State | None = None
    """None: the event is being recorded in this batch, was pruned, or never was here."""

    def has(self, item: Item) -> bool:
        """Whether the item brings nothing but what the owner of its key has."""
        return self.fingerprint in (item.fingerprint, b"", AS_LISTED)


class Proposal(NamedTuple):
    """An identity that an arrival would like to own."""

    identity: bytes
    kind: str
    source: str
    event_id: UUID
    fingerprint: bytes


class Verdict(NamedTuple):
    """One item, and what it turned out to be."""

    arrival: Arrival
    place: int
    item: Item
    recorded: Recorded


class Judgement(Struct):
    """The whole batch, judged."""

    verdicts: list[Verdict]
    repoint: dict[bytes, UUID]
    """Identities won by an item that became no event: they belong to the known event instead."""
    release: set[bytes]
    """Bodies won by a conflict: they are nobody's, so that their own delivery can still become an event."""


def proposals(arrivals: Sequence[Arrival]) -> list[Proposal]:
    """Every identity in the batch, the first proposer of each, in one sorted order.

    Sorted, so that two batches that share identities wait for each other
    instead of deadlocking.
    """
    first: dict[bytes, Proposal] = {}
    for arrival in arrivals:
        for item, event_id in zip(arrival.items, arrival.event_ids, strict=True):
            if item.identity not in first:
                # What an API lists is written otherwise than what is delivered: its bytes tell no conflict.
                content = AS_LISTED if arrival.unsigned else item.fingerprint
                first[item.identity] = Proposal(item.identity, "key", arrival.source, event_id, content)
            body = item.body_identity
            if body is not None and body not in first:
                first[body] = Proposal(body, "body", arrival.source, event_id, item.fingerprint)
    return [first[identity] for identity in sorted(first)]


def all_new(arrivals: Sequence[Arrival], won: int) -> Judgement | None:
    """The judgement where every identity of the batch was won, and none stands in it twice: most batches are so."""
    identities = sum([1 if item.body_identity is None else 2 for arrival in arrivals for item in arrival.items])
    if won != identities:
        return None
    verdicts = [
        Verdict(arrival, place, item, Recorded(new_outcome(item, reconciled=arrival.reconciled), event_id))
        for arrival in arrivals
        for place, (item, event_id) in enumerate(zip(arrival.items, arrival.event_ids, strict=True))
    ]
    return Judgement(verdicts, {}, set())


def conflicts(arrivals: Sequence[Arrival], owners: dict[bytes, Owner]) -> set[bytes]:
    """Whose owners must be looked up as well: contents that are conflicts unless an operator admitted them."""
    found = set()
    for arrival in arrivals:
        for item, event_id in zip(arrival.items, arrival.event_ids, strict=True):
            owner = owners.get(item.identity)
            if owner is None or owner.event_id == event_id or arrival.unsigned:
                continue
            if not owner.has(item):
                found.add(admitted_identity(arrival.source, item.identity, item.fingerprint))
    return found


def judge(arrivals: Sequence[Arrival], owners: dict[bytes, Owner]) -> Judgement:
    """What each item is, given who owns each identity in it, and each of its `conflicts` that was admitted."""
    owners = dict(owners)
    result = Judgement([], {}, set())

    def own(identity: bytes | None, event_id: UUID, fingerprint: bytes) -> Owner | None:
        if identity is None:
            return None
        if identity in result.release:
            result.release.discard(identity)
            owners[identity] = Owner(event_id, fingerprint)
            result.repoint[identity] = event_id
        try:
            return owners[identity]
        except KeyError:
            # Taken when we inserted, gone when we looked: being pruned right now.
            raise Unavailable("an identity changed hands while it was being looked up") from None

    for arrival in arrivals:
        for index, (item, event_id) in enumerate(zip(arrival.items, arrival.event_ids, strict=True)):
            by_key = own(item.identity, event_id, item.fingerprint)
            by_body = own(item.body_identity, event_id, item.fingerprint)
            assert by_key is not None
            known = by_key
            if by_key.event_id != event_id:
                outcome = DeliveryOutcome.DUPLICATE
                if not by_key.has(item) and not arrival.unsigned:
                    admitted = owners.get(admitted_identity(arrival.source, item.identity, item.fingerprint))
                    known = admitted or by_key
                    outcome = DeliveryOutcome.DUPLICATE if admitted else DeliveryOutcome.CONFLICT
            elif by_body is not None and by_body.event_id != event_id:
                known, outcome = by_body, DeliveryOutcome.SAME_BODY
            else:
                outcome = new_outcome(item, reconciled=arrival.reconciled)
            for identity, owner in ((item.identity, by_key), (item.body_identity, by_body)):
                if not identity or not owner or owner.event_id != event_id or known.event_id == event_id:
                    continue
                if outcome is DeliveryOutcome.CONFLICT:
                    result.release.add(identity)
                    result.repoint.pop(identity, None)
                else:
                    owners[identity] = known._replace(fingerprint=owner.fingerprint)
                    result.repoint[identity] = known.event_id
            recorded = Recorded(outcome, known.event_id, known.state)
            result.verdicts.append(Verdict(arrival, index, item, recorded))
    return result


def new_outcome(item: Item, *, reconciled: bool = False) -> DeliveryOutcome:
    """What the delivery of a new event is."""
    if item.invalid:
        return DeliveryOutcome.INVALID
    return DeliveryOutcome.RECONCILED if reconciled else _ACCEPTED


def first_state(item: Item) -> tuple[State, str | None]:
    """The state a new event starts in, and why if it is not `pending`."""
    if item.invalid:
        return State.FAILED, item.invalid
    if item.skip:
        return State.SKIPPED, item.skip
    if item.review:
        return State.NEEDS_REVIEW, item.review
    return _PENDING, None
