"""Amazon SNS: HTTP and HTTPS subscriptions of a topic."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..handshake import Handshake
from ..schemes.certificate import Certificate

# Regions only: sns.s3.amazonaws.com would be a customer's bucket. Each partition has its own domain.
REGION = (
    r"((?!cn-)[a-z]{2}(-[a-z]+)+-[0-9]\.amazonaws\.com"
    r"|cn-[a-z]+-[0-9]\.amazonaws\.com\.cn"
    r"|eusc-[a-z]{2}-[a-z]+-[0-9]\.amazonaws\.eu)"
)
HOST = rf"sns\.{REGION}"
SIGNING = rf"sns(-signing)?\.{REGION}"
SUBJECT = (
    rf"({SIGNING}|sns\.amazonaws\.(com|com\.cn|eu)"
    r"|sns-us-gov-[a-z]+-[0-9]\.amazonaws\.com|sns-cn-[a-z]+-[0-9]\.amazonaws\.com\.cn)"
)

CONTRACTS = (
    Contract(
        name="aws_sns",
        title="Amazon SNS",
        scheme=Certificate(
            kind="sns",
            host=SIGNING,
            path=r"/SimpleNotificationService-[0-9a-f]{32}\.pem",
            subject=SUBJECT,
            tolerance=3900,  # the longest delivery policy ends after an hour
        ),
        secret="the ARN of the topic",
        id=body("MessageId"),
        type=(body("Type"),),
        object_id=(body("TopicArn"),),
        occurred_at=body("Timestamp"),
        # Not signed: a rotated certificate or another subscription changes these, not the message.
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
        retries=Retries(
            automatic=True,
            hours=1,
            schedule="3 times, 20 seconds apart; another delivery policy lasts an hour at most; only after 5xx, 429 "
            "and failed connections",
            signs_each_attempt="no",
            why="the signed Timestamp is that of the publication",
            advice="by default it retries three times, 20 seconds apart, so an outage of a minute loses events: give "
            "the subscription a delivery policy of up to an hour, and a dead-letter queue",
        ),
        lister=Lister(redeliver="the subscription's dead-letter queue, if it has one"),
        confirmed=Confirmed(
            signature="docs",
            event="docs",
            handshake="docs",
            response="memory",
            retry="docs",
            reconcile="docs",
            sources=(
                "Amazon's developer guide for SNS: message formats, delivery retries, dead-letter queues",
                "sns-message-validator 0.0.1",
                "aws-sdk-java-v2: SnsHostProvider, the certificates' names by region",
            ),
        ),
        notes=(
            "Any 4xx but 429 is final, so a wrong topic ARN loses events immediately; that 429 is retried is from "
            "memory.",
            "Regions of the partitions aws, aws-us-gov, aws-cn and aws-eusc work, the isolated ones do not.",
            "Hookledger confirms the subscription, and records the request for it as an event.",
            "An UnsubscribeConfirmation is an ordinary event. Hookledger does not call its URL, which would "
            "subscribe again.",
            "Leave raw message delivery off: without the envelope there is no signature.",
            "Choose signature version 2 for the topic: version 1 is SHA-1.",
            "Message holds what you published as a text, often JSON. MessageAttributes are not signed.",
        ),
    ),
)
