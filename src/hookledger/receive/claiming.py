"""Record deliveries and claim their events in one commit, for handlers that answer them."""

from __future__ import annotations

from ..batching import Flush, retry_individually, short_way_first
from ..model import Arrival
from ..store.ops.answers import Claim
from ..store.protocol import Store


def claiming(store: Store, worker: str, lease: float) -> Flush[Arrival, Claim]:
    """Return what records a batch of arrivals of one item each, and claims what is new."""
    return short_way_first(
        lambda arrivals: store.claim_new(arrivals, worker, lease),
        retry_individually(lambda arrivals: store.record_claimed(arrivals, worker, lease)),
    )
