"""Lemon Squeezy: orders, subscriptions and licence keys."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="lemonsqueezy",
        title="Lemon Squeezy",
        scheme=Hmac(header=b"x-signature", min_key=6),
        secret="the webhook's signing secret, as text: 6 to 40 characters of your own",
        # No id is documented, and updated_at has only seconds, so the whole content identifies the event, without the
        # links that expire and an id whose meaning is not documented.
        type=(body("meta.event_name"),),
        object_id=(body("data.id"),),
        occurred_at=body("data.attributes.updated_at"),
        volatile=(body("meta.webhook_id"), body("data.attributes.urls")),
        answer=Answer(200),
        retries=Retries(automatic=True, hours=0.043, schedule="3 retries: 5s, 25s, 125s"),
        lister=Lister(list="orders and subscriptions themselves", redeliver="dashboard"),
        confirmed=Confirmed(
            signature="quoted",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=("docs.lemonsqueezy.com: webhook requests, signing requests", "SHA-256: code of others"),
        ),
        notes=(
            "It gives up after two and a half minutes: a restart that takes longer loses events, so reconcile.",
            "Anything but 200 counts as a failure. No time is signed.",
            "The secret may be as short as six characters: choose a long one.",
        ),
    ),
)
