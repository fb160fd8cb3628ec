"""Stripe: snapshot and thin events."""

from __future__ import annotations

from .contract import Contract, body
from .schemes import Hmac, Timestamp

CONTRACT = Contract(
    name="stripe",
    title="Stripe",
    scheme=Hmac(
        header=b"stripe-signature",  # t=<seconds>,v1=<hex>[,v1=<hex>][,v0=<hex>]
        separator=b",",
        prefix=b"v1=",
        timestamp=Timestamp(prefix=b"t=", tolerance=300),
        message="{ts}.{body}",
    ),
    id=body("id"),
    type=(body("type"),),
    object_id=(body("data.object.id"), body("related_object.id")),  # the second in thin events
    occurred_at=body("created"),
    volatile=(body("pending_webhooks"),),  # counts down as other endpoints acknowledge the same event
    retry_hours=72,
)
