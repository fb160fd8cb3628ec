"""Resend: events of emails, through Svix."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..presets import standard_webhooks

CONTRACTS = (
    Contract(
        name="resend",
        title="Resend",
        scheme=standard_webhooks(prefix="svix"),
        secret="the webhook's signing secret: whsec_ and the key in base64",
        id=header("svix-id"),
        type=(body("type"),),
        object_id=(body("data.email_id"), body("data.id")),  # contacts and domains have the second
        occurred_at=body("created_at"),
        deadline=15,
        retries=Retries(
            automatic=True,
            hours=27.58,
            schedule="5s, 5m, 30m, 2h, 5h, 10h, 10h",
            signs_each_attempt="yes",
            why="Svix documents the time as that of the attempt, and its server signs when it sends",
        ),
        lister=Lister(
            list="GET /webhooks/{id}/events, …/attempts",
            redeliver="POST /webhooks/{id}/events/{event_id}/replay, or dashboard",
        ),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            response="docs",
            retry="docs",
            reconcile="code",
            sources=("resend 2.50.0", "resend.com: retries and replays"),
        ),
        notes=("Several opens or clicks of one email are several events.",),
    ),
)
