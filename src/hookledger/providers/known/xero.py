"""Xero: changes of contacts, invoices and the like."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="xero",
        title="Xero",
        scheme=Hmac(header=b"x-xero-signature", encoding="base64"),
        secret="the webhook key as shown: it looks like base64 and is used as text",
        # No id per event, and the sequence numbers are of the batch, which a retry may split differently.
        key=(
            body("tenantId"),
            body("eventCategory"),
            body("eventType"),
            body("resourceId"),
            body("eventDateUtc"),
        ),
        type=(body("eventCategory"), body("eventType")),
        object_id=(body("resourceId"),),
        occurred_at=body("eventDateUtc"),
        items=(("events",),),
        answer=Answer(200, b""),
        rejection=401,
        deadline=5,
        retries=Retries(automatic=True, hours=24, schedule="at a falling rate"),
        confirmed=Confirmed(
            signature="code",
            event="code",
            handshake="code",
            response="memory",
            retry="memory",
            reconcile="memory",
            sources=("public samples of Intent to Receive", "Prismatic's example payload"),
        ),
        notes=(
            "Before it delivers, Xero posts empty batches with right and wrong signatures, which must get 200 and "
            "401 without a body. Hookledger answers so; they are no events.",
            "An event names the changed resource, not the change: fetch the resource.",
            "After an outage, list what was modified since, resource by resource.",
        ),
    ),
)
