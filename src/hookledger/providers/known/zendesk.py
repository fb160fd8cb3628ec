"""Zendesk: event webhooks, and webhooks called by triggers and automations."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import Constant, body, header
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

SCHEME = Hmac(
    header=b"x-zendesk-webhook-signature",
    encoding="base64",
    # Zendesk documents no limit; the retries end within minutes.
    timestamp=Timestamp(header=b"x-zendesk-webhook-signature-timestamp", unit="iso", tolerance=600),
    message="{ts}{body}",
)
RETRIES = Retries(
    automatic=True,
    hours=0.1,
    schedule="a few times, after 409, 429, 503 and timeouts",
    disables="a circuit breaker stops calls to an endpoint that keeps failing",
    why="Zendesk does not say",
)
LISTER = Lister(list="GET /api/v2/webhooks/{id}/invocations, and their attempts; about 7 days, unconfirmed")
CONFIRMED = Confirmed(
    signature="docs",
    event="memory",
    response="memory",
    retry="memory",
    reconcile="docs",
    sources=("Zendesk's documentation: verifying, anatomy of a request, the webhooks API",),
)

CONTRACTS = (
    Contract(
        name="zendesk",
        title="Zendesk events",
        scheme=SCHEME,
        secret="the webhook's signing secret, as text",
        id=body("id"),
        type=(body("type"),),
        object_id=(body("detail.id"),),
        occurred_at=body("time"),
        delivery_id=header("X-Zendesk-Webhook-Invocation-Id"),
        deadline=12,
        retries=RETRIES,
        lister=LISTER,
        confirmed=CONFIRMED,
        notes=("Only some failures are retried, and not for long: after an outage, list the invocations.",),
    ),
    Contract(
        name="zendesk_triggers",
        title="Zendesk triggers",
        scheme=SCHEME,
        secret="the webhook's signing secret, as text",
        # The author of the trigger writes the body, so it may be the same each time the trigger fires. All attempts
        # of an invocation have its id.
        id=header("X-Zendesk-Webhook-Invocation-Id"),
        type=(Constant("trigger"),),
        object_id=(body("ticket_id"), body("ticket.id"), body("id")),
        delivery_id=header("X-Zendesk-Webhook-Invocation-Id"),
        repeatable=frozenset({"trigger"}),
        deadline=12,
        retries=RETRIES,
        lister=LISTER,
        confirmed=CONFIRMED,
        notes=(
            "The invocation's id is not signed: anyone who captured a request can replay it under another id within "
            "the tolerance.",
            "Set the webhook to POST and JSON: Hookledger rejects GET and DELETE without a body.",
        ),
    ),
)
