"""Mailgun: delivery, engagement and complaint events; not the forms of its routes."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="mailgun",
        title="Mailgun",
        scheme=Hmac(
            json=("signature", "signature"),
            json_also=("signature", "parent-signature"),  # of a subaccount's event, with the main account's key
            message="{json:signature.timestamp}{json:signature.token}",
            # A signature must last for the retries, 8 hours. Mailgun's advice is 15 minutes.
            timestamp=Timestamp(body=("signature", "timestamp"), tolerance=8.25 * 3600),
        ),
        secret="the HTTP webhook signing key, as text",
        # Mailgun guarantees a unique id only within a day; the message id distinguishes the days.
        id=body("event-data.id"),
        key=(body("event-data.id"), body("event-data.message.headers.message-id")),
        type=(body("event-data.event"),),
        object_id=(body("event-data.message.headers.message-id"),),
        occurred_at=body("event-data.timestamp"),
        volatile=(body("signature"),),
        tokens=(body("signature.token"),),
        answer=Answer(status=200),  # Mailgun retries after anything but 200 and 406
        retries=Retries(
            automatic=True,
            hours=8,
            schedule="5m, 10m, 15m, 1h, 2h, 4h; never after a 406",
            signs_each_attempt="no",
            why="retries have the first signature block, as Hookdeck found; not documented",
        ),
        lister=Lister(list="GET /v3/{domain}/events"),
        confirmed=Confirmed(
            signature="run",
            event="quoted",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=(
                "mailgun 1.10.0: security.py",
                "Mailgun's documentation: retries, securing webhooks",
                "django-anymail",
                "hookdeck/webhook-skills: mailgun",
            ),
        ),
        notes=(
            "Only a time and a random token are signed, not the event. Each token proves one event: with another id "
            "or other content it is quarantined. An attacker who has a request before it is delivered can still "
            "forge that one.",
            "An event of a subaccount is signed twice: set the subaccount's key, or the main account's, or both.",
            "A route that forwards incoming mail posts a form of another shape, which this contract does not read.",
        ),
    ),
)
