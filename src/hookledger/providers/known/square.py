"""Square: payments, orders, customers and the rest of its platform."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="square",
        title="Square",
        scheme=Hmac(header=b"x-square-hmacsha256-signature", encoding="base64", message="{url}{body}"),
        secret="the subscription's signature key, as text",
        id=body("event_id"),
        type=(body("type"),),
        object_id=(body("data.id"),),
        occurred_at=body("created_at"),
        deadline=10,
        retries=Retries(
            automatic=True,
            hours=24,
            schedule="exponential",
            disables="disables the endpoint after three weeks without one success",
        ),
        lister=Lister(
            list="POST /v2/events",
            days=28,
            enable="events can be searched only after PUT /v2/events/enable, and older ones never",
            redeliver="dashboard",
        ),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="code",
            sources=(
                "squareup 46.0.0: webhooks_helper.py, events/client.py",
                "developer.squareup.com: webhooks troubleshooting, Events API (search, enable, disable)",
            ),
        ),
        notes=(
            "Square signs the subscription's URL exactly as entered, with a trailing slash if it has one: set "
            "public_url to the same.",
            "No time is signed.",
            "payment.updated is sent several times for one payment, each a separate event: check its status.",
        ),
    ),
)
