"""Amazon SNS: HTTP and HTTPS subscriptions of a topic."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..handshake import Handshake
from ..schemes.certificate import Certificate

# A region, not any word: sns.s3.amazonaws.com would be somebody's bucket.
HOST = r"sns\.[a-z]{2}(-[a-z]+)+-[0-9]\.amazonaws\.com(\.cn)?"

CONTRACTS = (
    Contract(
        name="aws_sns",
        title="Amazon SNS",
        scheme=Certificate(
            kind="sns",
            host=HOST,
            path=r"/SimpleNotificationService-[0-9a-f]{32}\.pem",
            subject=r"sns(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?",
            tolerance=3900,  # signed once, when it is published; retries end after an hour
        ),
        secret="the ARN of the topic",
        id=body("MessageId"),
        type=(body("Type"),),
        object_id=(body("TopicArn"),),
        occurred_at=body("Timestamp"),
        # What is not signed: a rotated certificate, or another subscription, changes it and not the message.
        volatile=(
            body("Signature"),
            body("SignatureVersion"),
            body("SigningCertURL"),
            body("UnsubscribeURL"),
            body("MessageAttributes"),
        ),
        deadline=15,
        handshakes=(
            Handshake(
                method="POST",
                when=((body("Type"), "SubscriptionConfirmation"),),
                signed=True,
                fetch=body("SubscribeURL"),
                fetch_pattern=f"https://{HOST}" + r"/\?Action=ConfirmSubscription"
                r"&TopicArn=arn:aws[a-z-]*:sns:[A-Za-z0-9_.:-]+&Token=[A-Fa-f0-9]+",
                keep=True,
            ),
        ),
        retries=Retries(automatic=True, hours=1, schedule="the subscription's delivery policy, an hour in all"),
        lister=Lister(redeliver="the subscription's dead-letter queue, if it has one"),
        confirmed=Confirmed(
            signature="docs",
            event="docs",
            handshake="docs",
            response="memory",
            retry="docs",
            reconcile="docs",
            sources=("Amazon's developer guide for SNS", "sns-message-validator 0.0.1"),
        ),
        notes=(
            "The subscription confirms itself; the request for it is recorded as an event too.",
            "An UnsubscribeConfirmation is an event like any other. Its URL would subscribe again: it is not called.",
            "Leave raw message delivery off: without the envelope there is no signature.",
            "Choose signature version 2 for the topic: version 1 is SHA-1.",
            "What you published is a text in Message, often JSON once more. MessageAttributes are not signed.",
        ),
    ),
)
