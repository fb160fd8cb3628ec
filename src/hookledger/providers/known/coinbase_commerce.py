"""Coinbase Commerce: charges."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="coinbase_commerce",
        title="Coinbase Commerce",
        scheme=Hmac(header=b"x-cc-webhook-signature"),
        secret="the webhook's shared secret, as text",
        id=body("event.id"),
        type=(body("event.type"),),
        object_id=(body("event.data.id"), body("event.data.code")),
        occurred_at=body("event.created_at"),
        delivery_id=body("id"),
        volatile=(body("id"), body("attempt_number"), body("scheduled_for")),  # of the delivery, not of the event
        answer=Answer(200),
        retries=Retries(automatic=True, hours=72, schedule="exponential, at most an hour apart"),
        lister=Lister(list="GET /events"),
        confirmed=Confirmed(
            signature="run",
            event="code",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=(
                "coinbase-commerce 1.0.1: webhook.py",
                "docs.cdp.coinbase.com: Commerce webhooks, overview, fields",
            ),
        ),
        notes=(
            "The top-level id is the delivery's; the event's is event.id.",
            "No time is signed.",
        ),
    ),
)
