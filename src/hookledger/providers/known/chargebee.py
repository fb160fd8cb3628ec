"""Chargebee: subscriptions and invoices, authenticated by a password or a key in the URL."""

from __future__ import annotations

from msgspec.structs import replace

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.token import Token

BASIC = Contract(
    name="chargebee",
    title="Chargebee",
    scheme=Token(header=b"authorization", basic=True),
    secret="USER:PASSWORD, as set for the webhook",
    id=body("id"),
    type=(body("event_type"),),
    object_id=(
        body("content.subscription.id"),
        body("content.invoice.id"),
        body("content.credit_note.id"),
        body("content.transaction.id"),
        body("content.quote.id"),
        body("content.order.id"),
        body("content.customer.id"),
    ),
    occurred_at=body("occurred_at"),
    volatile=(body("webhook_status"), body("webhooks")),  # the delivery's own status
    retries=Retries(automatic=True, hours=72, schedule="7 retries: 2m, 6m, 30m, 1h, 5h, 1d, 2d"),
    lister=Lister(list="GET /api/v2/events, by occurred_at, type and webhook_status", redeliver="admin console"),
    confirmed=Confirmed(
        signature="docs",
        event="docs",
        response="docs",
        retry="memory",
        reconcile="code",
        sources=("chargebee.com: webhook settings, FAQ", "chargebee 3.29.0: models/event"),
    ),
    notes=(
        "Nothing is signed: anyone with the password can forge events. Fetch the event by its id where much depends "
        "on it.",
        "Events arrive out of order: content.<resource>.resource_version tells which state is newer.",
        "The seven retries within three days are documented, their intervals are from memory.",
    ),
)

CONTRACTS = (
    BASIC,
    replace(
        BASIC,
        name="chargebee_key",
        title="Chargebee, key in the URL",
        scheme=Token(parameter="key"),
        secret="the word after ?key= in the webhook's URL",
    ),
)
