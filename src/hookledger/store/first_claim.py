"""A claim in the commit that records the event: what a worker would be told of it, without reading it back."""

from __future__ import annotations

from datetime import UTC, datetime

from ..model import Arrival, Claimed
from ..states import State
from .classify import first_state


def may_begin(arrival: Arrival) -> bool:
    """Whether a new event of one item can be claimed in the commit that records it, unless its kind is paused."""
    [item] = arrival.items
    return first_state(item)[0] is State.PENDING and not item.ordered


def first_claim(arrival: Arrival, received_at: datetime) -> Claimed:
    """The first claim of its event."""
    [item], [event_id] = arrival.items, arrival.event_ids
    return Claimed(
        id=event_id,
        claim=1,
        source=arrival.source,
        type=item.type,
        key=item.key,
        key_origin=item.key_origin,
        provider_id=item.provider_id,
        object_id=item.object_id,
        occurred_at=None if item.occurred_at is None else datetime.fromtimestamp(item.occurred_at, UTC),
        received_at=received_at,
        run=1,
        attempts=1,
        snoozes=0,
        crashes=0,
        run_age=0.0,
        item=0,
        headers=arrival.headers,
        query=arrival.query,
        body=arrival.body,
        entity=item.entity,
        version=item.version,
    )
