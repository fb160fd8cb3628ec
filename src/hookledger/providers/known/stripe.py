"""Stripe: snapshot and thin events."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="stripe",
        title="Stripe",
        scheme=Hmac(
            header=b"stripe-signature",  # t=<seconds>,v1=<hex>[,v1=<hex>][,v0=<hex>]
            separator=b",",
            prefix=b"v1=",
            timestamp=Timestamp(prefix=b"t=", tolerance=300),
            message="{ts}.{body}",
        ),
        secret="the endpoint's signing secret, whsec_…: all of it is the key",
        id=body("id"),
        type=(body("type"),),
        object_id=(body("data.object.id"), body("related_object.id")),  # the second in thin events
        occurred_at=body("created"),
        account=(body("account"), body("context")),  # of Connect, and of v2
        volatile=(body("pending_webhooks"),),  # decreases as other endpoints acknowledge the event
        retries=Retries(
            automatic=True,
            hours=72,
            schedule="exponential backoff; in test mode three attempts over a few hours",
            disables="disables the endpoint after prolonged failure",
            signs_each_attempt="yes",
            why="Stripe's documentation of replay attacks says so",
        ),
        lister=Lister(
            list="GET /v1/events, by type, creation and delivery_success",
            days=30,
            redeliver="dashboard, or `stripe events resend`",
            resend_days=30,
        ),
        confirmed=Confirmed(
            signature="run",
            event="code",
            response="memory",
            retry="docs",
            reconcile="code",
            sources=("stripe-python: _webhook.py, _event_service.py", "docs.stripe.com: webhooks, replay attacks"),
        ),
        notes=(
            "whsec_ is also the prefix of Standard Webhooks, whose key is derived differently: it does not identify "
            "the scheme.",
        ),
    ),
)
