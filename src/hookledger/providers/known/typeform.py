"""Typeform: responses to forms."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="typeform",
        title="Typeform",
        scheme=Hmac(header=b"typeform-signature", prefix=b"sha256=", encoding="base64"),
        secret="the webhook's secret, as text",
        id=body("event_id"),
        type=(body("event_type"),),
        object_id=(body("form_response.token"),),
        occurred_at=body("form_response.submitted_at"),
        max_body=4 * MIB,
        deadline=30,
        retries=Retries(automatic=True, schedule="sources disagree: three times within 35 minutes, or longer"),
        lister=Lister(list="GET /forms/{id}/responses"),
        confirmed=Confirmed(
            signature="quoted",
            event="quoted",
            response="memory",
            retry="quoted",
            reconcile="memory",
            sources=("hookdeck/webhook-skills: typeform", "trigger.dev"),
        ),
        notes=(
            "The signature is base64 after sha256=, where most others write hex.",
            "A webhook without a secret is not signed, and Hookledger rejects it.",
        ),
    ),
)
