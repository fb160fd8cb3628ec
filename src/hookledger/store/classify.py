"""Decides what each arrival is, once the unique constraint has spoken.

Pure: both stores insert the identities, look up who owns those that they did
not win, and then ask here. Duplicates inside one batch meet the same rules as
duplicates of what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from ..errors import Unavailable
from ..ids import quarantine_identity
from ..model import Arrival, Item, Recorded
from ..states import DeliveryOutcome, State

# Asked of their classes each time, members cost a call.
_ACCEPTED, _PENDING = DeliveryOutcome.ACCEPTED, State.PENDING
TAKEN = b"taken"
"""The fingerprint of a body as a type that no event was made of: it is not the type that the body came as first."""
AS_LISTED = b"api"
"""The fingerprint of an identity that a provider's log gave: its delivery may be written in any way."""


class Owner(NamedTuple):
    """The event that an identity belongs to."""

    event_id: UUID
    fingerprint: bytes
    """Empty where the key came from elsewhere: whatever content it brings was processed there. Of a body that types
    may share: their group."""
    state: State | None = None
    """None: the event is being recorded in this batch, was pruned, or never was here."""
    content: bytes | None = None
    """The fingerprint of the event's content, where its bytes are kept."""

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
    held: bool = False
    """Whether the event that it met keeps the same bytes."""


class Classification(Struct):
    """What every item of a batch is."""

    verdicts: list[Verdict]
    repoint: dict[bytes, tuple[UUID, bytes]]
    """Identities won by an item that became no event: the event that they belong to instead, and its fingerprint."""
    release: set[bytes]
    """Identities won by a conflict, less its tokens: they are free, so that their own delivery can still become an
    event."""

    def by_arrival(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        """The verdicts, grouped as the arrivals were."""
        verdicts = iter(self.verdicts)
        return [[next(verdicts).recorded for _ in arrival.items] for arrival in arrivals]


def claims(item: Item) -> Iterator[tuple[bytes, bytes]]:
    """Each identity that an item would like to own besides its key, and what is kept with it."""
    if item.body_identity is not None:
        yield item.body_identity, item.body_group or item.fingerprint
    if item.type_identity is not None:
        yield item.type_identity, item.fingerprint
    for token in item.token_identities:
        yield token, item.fingerprint


def proposals(arrivals: Sequence[Arrival]) -> list[Proposal]:
    """Every identity in the batch, the first proposer of each, in one sorted order.

    Sorted, so that two batches that share identities wait for each other
    instead of deadlocking.
    """
    first: dict[bytes, Proposal] = {}
    for arrival in arrivals:
        for item, event_id in zip(arrival.items, arrival.event_ids, strict=True):
            if item.identity not in first:
                content = _content(arrival, item)
                first[item.identity] = Proposal(item.identity, "key", arrival.source, event_id, content)
            if item.by_key_alone:
                continue
            for identity, content in claims(item):
                if identity not in first:
                    first[identity] = Proposal(identity, "body", arrival.source, event_id, content)
    return [first[identity] for identity in sorted(first)]


def _content(arrival: Arrival, item: Item) -> bytes:
    """What an API lists is written otherwise than what is delivered: its bytes tell no conflict."""
    return AS_LISTED if arrival.unsigned else item.fingerprint


def all_new(arrivals: Sequence[Arrival], won: int) -> Classification | None:
    """The classification where every identity of the batch was won and none occurs twice, as in most batches."""
    identities = sum(
        [1 if item.by_key_alone else 1 + len(list(claims(item))) for arrival in arrivals for item in arrival.items]
    )
    if won != identities:
        return None
    verdicts = [
        Verdict(arrival, place, item, Recorded(new_outcome(item, reconciled=arrival.reconciled), event_id))
        for arrival in arrivals
        for place, (item, event_id) in enumerate(zip(arrival.items, arrival.event_ids, strict=True))
    ]
    return Classification(verdicts, {}, set())


def conflicts(arrivals: Sequence[Arrival], owners: dict[bytes, Owner]) -> set[bytes]:
    """Whose owners must be looked up as well: contents that are conflicts unless an operator accepted them."""
    found = set()
    for arrival in arrivals:
        for item, event_id in zip(arrival.items, arrival.event_ids, strict=True):
            owner = owners.get(item.identity)
            if owner is None or arrival.unsigned:
                continue
            other_content = owner.event_id != event_id and not owner.has(item)
            if other_content or _foreign(item, owner, event_id, owners):
                found.add(quarantine_identity(arrival.source, item.identity, item.fingerprint))
    return found


def _foreign(item: Item, by_key: Owner, event_id: UUID, owners: dict[bytes, Owner]) -> Owner | None:
    """The event that a token of the item proved, if it is another than the one that its key names."""
    for token in item.token_identities:
        owner = owners.get(token)
        if owner is not None and owner.event_id not in (by_key.event_id, event_id):
            return owner
    return None


def classify(arrivals: Sequence[Arrival], owners: dict[bytes, Owner]) -> Classification:
    """What each item is, given who owns each identity in it, and each of its `conflicts` that was accepted."""
    batch = _Batch(dict(owners))
    for arrival in arrivals:
        for place, (item, event_id) in enumerate(zip(arrival.items, arrival.event_ids, strict=True)):
            batch.add(arrival, place, item, event_id)
    return batch.result


class _Batch:
    """Classifies one batch, item by item."""

    def __init__(self, owners: dict[bytes, Owner]) -> None:
        self.owners = owners
        self.result = Classification([], {}, set())
        self.made: dict[UUID, bytes] = {}
        """The events of this batch and their contents."""

    def add(self, arrival: Arrival, place: int, item: Item, event_id: UUID) -> None:
        wanted = [(item.identity, _content(arrival, item)), *claims(item)]
        for identity, content in wanted:
            self._own(identity, event_id, content)
        outcome, known = self._outcome(arrival, item, event_id)
        if known.event_id == event_id:
            self.made[event_id] = item.fingerprint
        else:
            kept = dict(wanted)
            if item.type_identity is not None:
                kept[item.type_identity] = TAKEN
            self._hand_over(kept, item, event_id, known, outcome)
        held = item.fingerprint == (known.content or self.made.get(known.event_id))
        recorded = Recorded(outcome, known.event_id, known.state)
        self.result.verdicts.append(Verdict(arrival, place, item, recorded, held))

    def _own(self, identity: bytes, event_id: UUID, content: bytes) -> None:
        result = self.result
        if identity in result.release:
            result.release.discard(identity)
            self.owners[identity] = Owner(event_id, content)
            result.repoint[identity] = event_id, content
        if identity not in self.owners:
            # Taken at the insert, gone at the lookup: it is being pruned.
            raise Unavailable("an identity changed during its lookup: its event is being pruned; try again")

    def _outcome(self, arrival: Arrival, item: Item, event_id: UUID) -> tuple[DeliveryOutcome, Owner]:
        by_key = self.owners[item.identity]
        foreign = _foreign(item, by_key, event_id, self.owners)
        if by_key.event_id != event_id and foreign is None and (by_key.has(item) or arrival.unsigned):
            return DeliveryOutcome.DUPLICATE, by_key
        if by_key.event_id != event_id or foreign is not None:
            accepted = self.owners.get(quarantine_identity(arrival.source, item.identity, item.fingerprint))
            if accepted is not None:
                return DeliveryOutcome.DUPLICATE, accepted
            return DeliveryOutcome.CONFLICT, foreign or by_key
        known = self._by_body(item, event_id)
        if known is not None:
            return DeliveryOutcome.SAME_BODY, known
        return new_outcome(item, reconciled=arrival.reconciled), by_key

    def _by_body(self, item: Item, event_id: UUID) -> Owner | None:
        """The event that has this body already, unless this type may have it too."""
        if item.body_identity is None:
            return None
        known = self.owners[item.body_identity]
        if item.type_identity is None:
            return None if item.repeats or known.event_id == event_id else known
        as_type = self.owners[item.type_identity]
        first = as_type.event_id == known.event_id and as_type.fingerprint != TAKEN
        if item.repeats and first:
            return None
        if as_type.event_id != event_id:
            return as_type
        return None if known.event_id == event_id or known.fingerprint == item.body_group else known

    def _hand_over(
        self, wanted: dict[bytes, bytes], item: Item, event_id: UUID, known: Owner, outcome: DeliveryOutcome
    ) -> None:
        """What an item won that became no event; each identity with what is kept with it.

        A conflict releases all but its tokens: one of those would prove a forged event next.
        """
        result = self.result
        for identity, content in wanted.items():
            if self.owners[identity].event_id != event_id:
                continue
            if outcome is DeliveryOutcome.CONFLICT and identity not in item.token_identities:
                result.release.add(identity)
                result.repoint.pop(identity, None)
            else:
                self.owners[identity] = known._replace(fingerprint=content)
                result.repoint[identity] = known.event_id, content


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
