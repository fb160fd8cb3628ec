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
            # SendGrid documents none; repeats were seen for 29 hours.
            timestamp=Timestamp(header=b"x-twilio-email-event-webhook-timestamp", tolerance=30 * 3600),
            key="spki",
        ),
        secret="the verification key that the settings show, in base64",
        items=((),),
        id=body("sg_event_id"),
        type=(body("event"),),
        object_id=(body("sg_message_id"),),
        occurred_at=body("timestamp"),
        retries=Retries(
            automatic=True,
            hours=29,
            schedule="at growing intervals for 24 hours, 10 minutes for a test endpoint; repeats up to 29 hours "
            "after the first were reported",
            why="SendGrid does not say",
        ),
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
                "sendgrid/docs issue 2933: one event 46 times in 29 hours",
            ),
        ),
        notes=(
            "Duplicates are common, also in later batches; sg_event_id identifies them.",
            "A late bounce may have no sg_message_id.",
            "The body ends with a line break, which is signed: a proxy must not trim it.",
        ),
    ),
)
