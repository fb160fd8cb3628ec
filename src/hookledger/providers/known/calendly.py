"""Calendly: invitees and routing form submissions."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="calendly",
        title="Calendly",
        scheme=Hmac(
            header=b"calendly-webhook-signature",  # t=<seconds>,v1=<hex>
            separator=b",",
            prefix=b"v1=",
            # Calendly's advice is 3 minutes; it retries for a day.
            timestamp=Timestamp(prefix=b"t=", tolerance=90000),
            message="{ts}.{body}",
        ),
        secret="the signing key of the subscription, or of the OAuth app, as text",
        # No id. The resource's URI is unique, and one resource has one event of a kind at a time.
        key=(body("event"), body("payload.uri"), body("created_at")),
        type=(body("event"),),
        object_id=(body("payload.uri"),),
        occurred_at=body("created_at"),
        deadline=15,
        retries=Retries(
            automatic=True,
            hours=24,
            schedule="exponential",
            disables="disables the endpoint after 24 hours",
            why="Calendly does not say; that it advises 3 minutes suggests it",
        ),
        confirmed=Confirmed(
            signature="docs",
            event="memory",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=("Calendly's documentation: signatures, timeouts, errors",),
        ),
        notes=("Calendly disables a subscription after 24 hours: create it again, and list the scheduled events.",),
    ),
)
