"""What the stores agree on about requests, deliveries and keys that did not plainly become events.

Pure: both stores read and write, and ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from ..cases import KeyAudit, KeyGroup, OddDelivery, Refusal
from ..errors import BadData, WrongState
from ..identities import admitted_identity, id_bounds
from ..model import Item, RequestRow
from ..states import DeliveryOutcome, KeyOrigin
from .judge import Proposal, claims

ODD = (DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY)
"""The outcomes that an operator can make an event of."""

LAST_ID = UUID(int=2**128 - 1)
"""After every id."""

IMPORT_BATCH = 1000
"""Identities that are taken in one transaction. A delivery with one of them waits for its end."""


# ── refused requests ─────────────────────────────────────────────────────────


def fitting(sample: Iterable[Refusal], most_bytes: int) -> list[Refusal]:
    """What of the sample can be kept at all, in the order of ids, its text as every database can hold it."""
    kept = [r for r in sample if len(r.query) + len(r.headers) + len(r.body) <= most_bytes]
    return [
        msgspec.structs.replace(
            refusal,
            method=_plain(refusal.method, 32),
            path=_plain(refusal.path, 2048),
            remote=None if refusal.remote is None else _plain(refusal.remote, 255),
        )
        for refusal in sorted(kept, key=lambda refusal: refusal.id)
    ]


def counted(counts: Mapping[tuple[str, str], int]) -> list[tuple[str, str, int]]:
    """Source, reason and how often, in one sorted order."""
    return [(*key, count) for key, count in sorted(counts.items()) if count]


def _plain(text: str, most: int) -> str:
    """Strangers choose it: no NUL, no lone surrogate, no novel."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


# ── odd deliveries ───────────────────────────────────────────────────────────


def page(found: Iterable[OddDelivery], limit: int) -> list[OddDelivery]:
    """The newest request first, up to `limit`; the deliveries of one request stay together."""
    ordered = sorted(found, key=lambda odd: odd.item)
    ordered.sort(key=lambda odd: odd.request_id, reverse=True)
    end = min(limit, len(ordered))
    while 0 < end < len(ordered) and ordered[end].request_id == ordered[end - 1].request_id:
        end += 1
    return ordered[:end]


def delivery_bounds(reference: str) -> tuple[UUID, UUID, int | None] | None:
    """The first and last request that `REQUEST` or `REQUEST:ITEM` can mean, and the item; None if it is neither."""
    request, colon, item = reference.partition(":")
    bounds = id_bounds(request)
    if bounds is None or (colon and not (item.isascii() and item.isdigit() and len(item) <= 9)):
        return None
    return (*bounds, int(item) if colon else None)


def with_bytes(request: RequestRow, found: Iterable[Sequence[bytes | None]]) -> RequestRow:
    """The request with the bytes that the event with the same body keeps for it, unless they were taken away."""
    for (body,) in found:
        if request.emptied_at is None and body is not None:
            return msgspec.structs.replace(request, body=body)
    return request


class Odd(NamedTuple):
    """An odd delivery that is about to be admitted."""

    source: str
    outcome: DeliveryOutcome
    known: UUID
    """The event that it met."""
    kept: bool
    admitted_as: UUID | None


def admissible(request_id: UUID, place: int, odd: Odd | None) -> Odd:
    """The delivery, if it can be admitted; else WrongState."""
    name = f"delivery {request_id}:{place}"
    if odd is None:
        raise WrongState(f"{name} is no conflict and no known body under another id, or it is not known")
    if odd.admitted_as is not None:
        raise WrongState(f"{name} was admitted before, as event {odd.admitted_as}")
    if not odd.kept:
        raise WrongState(f"the bytes of {name} were not kept")
    return odd


def admitted_before(request_id: UUID, place: int, event_id: UUID) -> WrongState:
    """Another delivery with this content under this key was faster."""
    return WrongState(f"what delivery {request_id}:{place} brought was admitted before, as event {event_id}")


def admission(odd: Odd, event_id: UUID, item: Item) -> list[Proposal]:
    """What the admitted event is to own besides its key, in one sorted order.

    Its content under that key, which nobody may have yet; and its body and token if they are nobody's, so that it is
    known under other ids too.
    """
    own = admitted_identity(odd.source, item.identity, item.fingerprint)
    wanted = [Proposal(own, "admitted", odd.source, event_id, item.fingerprint)]
    wanted += [Proposal(identity, "body", odd.source, event_id, content) for identity, content in claims(item)]
    return sorted(wanted)


# ── keys ─────────────────────────────────────────────────────────────────────


def import_batches(identities: Sequence[bytes]) -> list[list[bytes]]:
    """The different ones, in one sorted order. A bad one is found before any is taken."""
    if any(len(identity) != 32 for identity in identities):
        raise BadData("an identity is a digest of 32 bytes")
    return list(batches(sorted(set(identities)))) or [[]]


def batches(identities: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many as one statement takes."""
    for start in range(0, len(identities), IMPORT_BATCH):
        yield list(identities[start : start + IMPORT_BATCH])


class Shared(NamedTuple):
    """A group of events or deliveries, as the stores count them."""

    key: str
    fingerprint: bytes
    type: str
    number: int
    sample: tuple[UUID, ...]


def audit(
    source: str,
    origins: Mapping[KeyOrigin, int],
    again: Mapping[DeliveryOutcome, int],
    same_content: int,
    groups: Sequence[Sequence[Shared]],
) -> KeyAudit:
    """`again`: deliveries after the first. `groups`: same content, conflicts, same bodies."""
    contents, conflicting, bodies = groups
    looked_at = sum(origins.values())
    return KeyAudit(
        source,
        looked_at,
        # What was admitted came with a delivery of the event that it met.
        looked_at - origins.get(KeyOrigin.ADMITTED, 0) + sum(again.values()),
        dict(origins),
        again.get(DeliveryOutcome.DUPLICATE, 0),
        again.get(DeliveryOutcome.CONFLICT, 0),
        again.get(DeliveryOutcome.SAME_BODY, 0),
        same_content,
        tuple(KeyGroup(g.fingerprint.hex(), g.type, g.number, g.sample) for g in contents),
        tuple(KeyGroup(g.key, g.type, g.number, g.sample) for g in conflicting),
        tuple(KeyGroup(g.fingerprint.hex(), g.type, g.number, g.sample) for g in bodies),
    )
