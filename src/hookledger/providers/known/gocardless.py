"""GoCardless: batches of events about mandates, payments and payouts."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="gocardless",
        title="GoCardless",
        scheme=Hmac(header=b"webhook-signature"),
        secret="the endpoint's secret, as text",
        id=body("id"),
        type=(body("resource_type"), body("action")),
        # Some events link several resources; the event's own object comes first here.
        object_id=(
            body("links.subscription"),
            body("links.instalment_schedule"),
            body("links.billing_request"),
            body("links.refund"),
            body("links.payout"),
            body("links.outbound_payment"),
            body("links.payment"),
            body("links.mandate"),
            body("links.customer"),
            body("links.creditor"),
        ),
        occurred_at=body("created_at"),
        delivery_id=body("meta.webhook_id"),
        items=(("events",),),
        inherit=("meta",),
        volatile=(body("meta"),),  # the webhook's id: an event may be in several
        rejection=498,
        deadline=10,
        retries=Retries(automatic=True, schedule="up to 8 retries: 1m, 2m, 10m and so on"),
        lister=Lister(list="GET /events, GET /webhooks", redeliver="POST /webhooks/{id}/actions/retry, or dashboard"),
        confirmed=Confirmed(
            signature="run",
            event="code",
            response="quoted",
            retry="docs",
            reconcile="code",
            sources=(
                "gocardless_pro 3.22.0: webhooks.py, services",
                "support.gocardless.com: webhook retries",
                "GoCardless's API reference, quoted by others",
            ),
        ),
        notes=(
            "A request holds up to 250 events, which are accepted or rejected together.",
            "details.cause has the cause of an event: the same action has several causes.",
            "No time is signed, and it is unknown when the last retry is sent.",
        ),
    ),
)
