"""Quarantined deliveries: conflicts, and known bodies under other ids. An operator can make an event of each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from ...errors import BadData, WrongState
from ...ids import LAST_ID, id_bounds, new_id, quarantine_identity
from ...model import Item
from ...states import DeliveryOutcome, State
from ..classify import Proposal, claims
from ..history import RequestRow
from ..rows import value_of
from ..session import Operations, Row, Session, reads, writes
from .audit import Audit, Change, record_action

QUARANTINED = (DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY)
"""The outcomes that an operator can make an event of."""


class QuarantinedDelivery(Struct, frozen=True):
    """A delivery that is evidence for something: a conflict, or a known body under another id."""

    request_id: UUID
    item: int
    source: str
    outcome: DeliveryOutcome
    event_id: UUID
    """The event that it met."""
    event_key: str | None
    """None where that event is known by its key alone: imported, or pruned."""
    event_state: State | None
    """At that moment."""
    delivery_id: str | None
    received_at: datetime
    accepted_as: UUID | None
    """The event that an operator made of it."""


class Quarantine(Operations):
    """`store.quarantine`."""

    @reads
    async def quarantined(
        self,
        db: Session,
        *,
        source: str | None = None,
        outcome: DeliveryOutcome | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[QuarantinedDelivery]:
        """Conflicts and known bodies under other ids, the newest request first, from before the request `before`.

        The deliveries of one request stay together, so that there may be a few more than `limit`.
        """
        sources = [source] if source is not None else [row["source"] for row in await db("quarantine_sources")]
        among = [(name, kind) for name in sources for kind in QUARANTINED if outcome in (None, kind)]
        limit = max(limit, 0)
        found = await db("list_quarantined", among=among, before=before or LAST_ID, limit=limit)
        return _page([value_of(QuarantinedDelivery, row, accepted_as=row["accepted_id"]) for row in found], limit)

    @reads
    async def find_delivery(self, db: Session, reference: str) -> list[tuple[UUID, int]]:
        """Request and item of quarantined deliveries by `REQUEST` (or the beginning of its id) or `REQUEST:ITEM`; at
        most ten."""
        request, colon, item = reference.partition(":")
        bounds = id_bounds(request)
        if bounds is None or (colon and not (item.isascii() and item.isdigit() and len(item) <= 9)):
            return []
        given = {"first": bounds[0], "last": bounds[1], "item": int(item) if colon else None}
        return [(row["request_id"], row["item"]) for row in await db("find_quarantined", **given)]

    @reads
    async def request(self, db: Session, request_id: UUID) -> RequestRow | None:
        """A request that was kept, with its bytes; its `source` is the delivery's."""
        for row in await db("kept_request", id=request_id):
            request = value_of(RequestRow, row)
            if not request.body and request.emptied_at is None:
                for borrowed in await db("borrowed_body", request_id=request_id):
                    if borrowed["body"] is not None:
                        return msgspec.structs.replace(request, body=borrowed["body"])
            return request
        return None

    @writes
    async def accept(self, db: Session, request_id: UUID, place: int, item: Item, actor: str, reason: str) -> UUID:
        """A quarantined delivery → a new event, pending, audited; returns its id.

        The event has the delivery's request and place in it, and its key says so: `KEY~2` for the second event of
        that key, and so on. From then on the same content under the same key is a duplicate of the new event; so the
        other deliveries that brought it were accepted with this one.
        Raises WrongState when there is no such quarantined delivery, its bytes are gone, or it was accepted
        before; the words then say as which event.
        """
        event_id, where = new_id(), {"request_id": request_id, "item": place}
        await db("keep_body", request_id=request_id)
        await db("lock_deliveries", places=[(request_id, place)])
        delivery = _acceptable(request_id, place, await db("quarantined", **where))
        met = delivery["event_id"] if delivery["outcome"] == DeliveryOutcome.SAME_BODY else None
        key = {"identity": item.identity, "source": delivery["source"], "fingerprint": item.fingerprint}
        await db("own_accepted_key", event_id=event_id, met=met, **key)
        wanted = _identities_to_own(delivery["source"], event_id, item)
        won = {row["identity"] for row in await db("own_accepted", wanted=wanted)}
        for proposal in wanted:
            if proposal.kind == "quarantine" and proposal.identity not in won:
                # A separate statement, which sees what another transaction committed while the insert waited.
                [owner] = await db("known_owners", identities=[proposal.identity])
                brought = f"what delivery {request_id}:{place} brought"
                raise WrongState(f"{brought} was accepted already, as event {owner['event_id']}")
        copied = ("type", "key", "provider_id", "object_id", "fingerprint", "account", "entity", "ordered", "hold")
        facts = {name: getattr(item, name) for name in (*copied, "version")}
        times = {"occurred_at": _moment(item.occurred_at), "order_at": _moment(item.order_at)}
        await db("accept", id=event_id, source=delivery["source"], **times, **facts, **where)
        subject, states = f"{request_id}:{place}", (delivery["outcome"], State.PENDING.value)
        await record_action(db, "accept", Audit(actor, reason), Change(subject, states, event_id))
        return event_id


def _acceptable(request_id: UUID, place: int, found: list[Row]) -> Row:
    """The delivery, if it can be accepted; else WrongState."""
    name = f"delivery {request_id}:{place}"
    if not found:
        raise WrongState(f"{name} is not in quarantine; list what is with hookledger quarantine")
    [row] = found
    if row["accepted_id"] is not None:
        raise WrongState(f"{name} was accepted already, as event {row['accepted_id']}")
    if not row["kept"]:
        raise WrongState(f"the bytes of {name} were not kept")
    return row


def _identities_to_own(source: str, event_id: UUID, item: Item) -> list[Proposal]:
    """What the accepted event is to own besides its key, in one sorted order.

    Its content under that key, which must be free; and its body and token if they are free, so that it is
    known under other ids too.
    """
    own = quarantine_identity(source, item.identity, item.fingerprint)
    wanted = [Proposal(own, "quarantine", source, event_id, item.fingerprint)]
    wanted += [Proposal(identity, "body", source, event_id, content) for identity, content in claims(item)]
    return sorted(wanted)


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadData(f"{seconds} s is no time: {error}") from error


def _page(found: Iterable[QuarantinedDelivery], limit: int) -> list[QuarantinedDelivery]:
    """The newest request first, up to `limit`; the deliveries of one request stay together."""
    ordered = sorted(found, key=lambda one: one.item)
    ordered.sort(key=lambda one: one.request_id, reverse=True)
    end = min(limit, len(ordered))
    while 0 < end < len(ordered) and ordered[end].request_id == ordered[end - 1].request_id:
        end += 1
    return ordered[:end]
