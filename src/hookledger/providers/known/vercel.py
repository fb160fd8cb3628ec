"""Vercel: account and integration webhooks."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="vercel",
        title="Vercel",
        scheme=Hmac(header=b"x-vercel-signature", alg="sha1"),
        secret="the webhook's secret, or the integration's client secret, as text",
        id=body("id"),
        type=(body("type"),),
        object_id=(
            body("payload.deployment.id"),
            body("payload.project.id"),
            body("payload.domain.name"),
            body("payload.configuration.id"),
        ),
        occurred_at=body("createdAt"),
        occurred_unit="ms",
        deadline=30,
        retries=Retries(automatic=True, hours=24, schedule="exponential, for up to 24 hours"),
        confirmed=Confirmed(
            signature="quoted",
            event="memory",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=("hookdeck/webhook-skills: vercel",),
        ),
        notes=("No time is signed, so a captured request stays valid: its id makes a replay a duplicate.",),
    ),
)
