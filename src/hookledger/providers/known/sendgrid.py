"""SendGrid: the signed Event Webhook, in batches."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.public_key import PublicKey
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="sendgrid",
        title="SendGrid Event Webhook",
        scheme=PublicKey(
            header=b"x-twilio-email-event-webhook-signature",
            alg="ecdsa-p256-sha256",
            message="{ts}{body}",
            # SendGrid names no tolerance, and that a retry is signed anew is not known: the day of its retries.
            timestamp=Timestamp(header=b"x-twilio-email-event-webhook-timestamp", tolerance=86400),
            key="spki",
        ),
        secret="the verification key that the settings show, in base64",
        items=((),),
        id=body("sg_event_id"),
        type=(body("event"),),
        object_id=(body("sg_message_id"),),
        occurred_at=body("timestamp"),
        retries=Retries(automatic=True, hours=24, schedule="at growing intervals; for a test endpoint 10 minutes"),
        lister=Lister(list="GET /v3/messages (Email Activity, paid)"),
        confirmed=Confirmed(
            signature="run",
            event="quoted",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=(
                "sendgrid 6.12.5: helpers/eventwebhook",
                "SendGrid's Event Webhook reference; its advice on duplicates, in a copy",
            ),
        ),
        notes=(
            "Duplicates are common, in later batches too; sg_event_id tells them.",
            "A bounce that comes late may have no sg_message_id.",
            "The body ends with a line break, which is signed: a proxy must not trim it.",
        ),
    ),
)
