"""Mollie: signed events, and classic webhooks that contain only an id."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import Constant, body
from ..schemes.hmac import Hmac
from ..schemes.token import Token

SOURCES = (
    "mollie-api-php: SignatureValidator.php, docs/webhooks.md",
    "Mollie's documentation, quoted by others",
)

CONTRACTS = (
    Contract(
        name="mollie",
        title="Mollie",
        scheme=Hmac(header=b"x-mollie-signature", prefix=b"sha256=", prefix_optional=True, repeats=True),
        secret="the webhook's signing secret, as text",
        id=body("id"),
        type=(body("type"),),
        object_id=(body("entityId"),),
        occurred_at=body("createdAt"),
        answer=Answer(200),
        deadline=15,
        retries=Retries(automatic=True, hours=26, schedule="10 attempts"),
        lister=Lister(list="GET /v2/events/{id}, one at a time"),
        confirmed=Confirmed(
            signature="code", event="code", response="quoted", retry="quoted", reconcile="code", sources=SOURCES
        ),
        notes=(
            "No time is signed.",
            "The retries are those of the classic webhooks: it is unknown whether they are the same here.",
        ),
    ),
    Contract(
        name="mollie_classic",
        title="Mollie, classic webhooks",
        scheme=Token(parameter="token", optional=True),
        secret="none from Mollie: a secret that you choose, as ?token=… in the webhook's URL",
        content="form",
        # Each change of a payment has the same body id=tr_…: nothing distinguishes two changes.
        hint=True,
        max_body=4096,  # an id, from anyone
        type=(Constant("changed"),),
        object_id=(body("id"),),
        answer=Answer(200),
        deadline=15,
        retries=Retries(automatic=True, hours=26, schedule="10 attempts"),
        lister=Lister(list="the payments and orders themselves"),
        confirmed=Confirmed(
            signature="code", event="code", response="quoted", retry="quoted", reconcile="code", sources=SOURCES
        ),
        notes=(
            "Nothing is signed: fetch the object with the API key, and trust only that.",
            "Each arrival is an event. Make the handler's effects unique by the object and its new status, since a "
            "change may be announced more than once.",
        ),
    ),
)
