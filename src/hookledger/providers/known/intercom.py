"""Intercom: webhook topics of an app."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body
from ..handshake import Handshake
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="intercom",
        title="Intercom",
        scheme=Hmac(header=b"x-hub-signature", prefix=b"sha1=", alg="sha1"),
        secret="the app's client secret",
        id=body("id"),
        type=(body("topic"),),
        object_id=(body("data.item.id"),),
        occurred_at=body("created_at"),
        # The delivery's own status.
        volatile=(body("delivery_attempts"), body("delivery_status"), body("delivered_at"), body("first_sent_at")),
        answer=Answer(status=200),
        deadline=5,
        handshakes=(Handshake(method="HEAD", when=()),),  # before it saves the URL
        retries=Retries(
            automatic=True,
            hours=0.02,
            schedule="once, after a minute",
            disables="pauses for 15 minutes after 1,000 errors in a row; suspends private apps after 7 days of them",
        ),
        confirmed=Confirmed(
            signature="quoted",
            event="memory",
            handshake="docs",
            response="memory",
            retry="memory",
            reconcile="memory",
            sources=(
                "developers.intercom.com: setting up webhooks",
                "Intercom's documentation on notifications",
                "hookdeck/webhook-skills",
            ),
        ),
        notes=(
            "X-Hub-Signature is SHA-1 here and SHA-256 at Bitbucket and Jira.",
            "There is one retry and no list of events: an outage of minutes loses events.",
            "The ping that tests the URL has no id; it is an event of type ping.",
        ),
    ),
)
