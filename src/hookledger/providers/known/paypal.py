"""PayPal: REST webhooks, signed with a certificate."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..schemes.certificate import Certificate

CONTRACTS = (
    Contract(
        name="paypal",
        title="PayPal",
        scheme=Certificate(
            kind="paypal",
            host=r"api(-m)?(\.sandbox)?\.paypal\.com",
            path=r"/v1/notifications/certs/[A-Za-z0-9_-]+",
            subject=r"messageverificationcerts(\.sandbox)?\.paypal\.com",
            tolerance=73 * 3600,  # PayPal names none, and retries for three days
        ),
        secret="the webhook's id, as the dashboard shows it",
        id=body("id"),
        type=(body("event_type"),),
        object_id=(body("resource.id"),),
        occurred_at=body("create_time"),
        delivery_id=header("PAYPAL-TRANSMISSION-ID"),
        tokens=(header("PAYPAL-TRANSMISSION-ID"),),
        retries=Retries(automatic=True, hours=72, schedule="up to 25 attempts", why="PayPal does not say"),
        lister=Lister(
            list="GET /v1/notifications/webhooks-events, by time, type and transaction",
            redeliver="POST /v1/notifications/webhooks-events/{id}/resend, or dashboard",
        ),
        confirmed=Confirmed(
            signature="run",
            event="code",
            response="quoted",
            retry="quoted",
            reconcile="code",
            sources=(
                "paypalrestsdk 1.13.3: notifications.py",
                "PayPal's OpenAPI: notifications_webhooks_v1",
                "PayPal's documentation, quoted by others",
                "PayPal's Java SDK: the certificate's subject",
            ),
        ),
        notes=(
            "The signature covers only a CRC-32 of the body, which anyone can match. Each transmission id proves one "
            "event: with another id or other content it is quarantined. An attacker who has a request before it is "
            "delivered can still forge that one: before money moves, fetch the resource, or call POST "
            "/v1/notifications/verify-webhook-signature.",
            "That a redelivery has the same id is from memory.",
            "Live and sandbox have different webhook ids: give each its own source.",
        ),
    ),
)
