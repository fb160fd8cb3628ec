"""Google Pub/Sub: authenticated push subscriptions."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import Constant, body
from ..schemes.jwt import Claim, Jwt

CONTRACTS = (
    Contract(
        name="google_pubsub",
        title="Google Pub/Sub",
        scheme=Jwt(
            jwks="https://www.googleapis.com/oauth2/v3/certs",
            issuers=("https://accounts.google.com", "accounts.google.com"),
            claims=(Claim(("email_verified",), True),),
            tolerance=3660,  # a token is valid for an hour and used for many requests
        ),
        options=("email",),
        secret="the audience of the subscription",
        id=body("message.messageId"),
        key=(body("subscription"), body("message.messageId")),  # the id is unique within a topic
        # The publisher chooses attributes; Cloud Storage and others use this name for their type.
        type=(Constant("message"), body("message.attributes.eventType")),
        object_id=(body("message.orderingKey"), body("message.attributes.objectId")),
        occurred_at=body("message.publishTime"),
        volatile=(body("deliveryAttempt"),),
        max_body=16 * MIB,  # 10 MB, as base64
        deadline=10,  # the subscription's, of 10 to 600 seconds
        retries=Retries(
            automatic=True,
            hours=744,
            schedule="until it is acknowledged, or the retention ends: 7 days by default, 31 at most",
            signs_each_attempt="yes",
            why="the token is not the message's: every request has one that has not expired",
        ),
        lister=Lister(
            list="a snapshot, or a pull subscription of the topic; as far back as its retention", redeliver="seek"
        ),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=(
                "GoogleCloudPlatform/python-docs-samples: pubsub",
                "google-auth 2.62.2",
                "Pub/Sub's reference of Subscription: ackDeadlineSeconds, messageRetentionDuration",
            ),
        ),
        notes=(
            "The token proves the sender, not the message.",
            "Set email to the service account of the subscription: anyone can get a token for your audience.",
            "The deadline is the subscription's acknowledgement deadline, 10 seconds unless you set up to 600; an "
            "unacknowledged message is kept for 7 days unless you set up to 31.",
            "Leave payload unwrapping off: the message's id would be in a header, or missing.",
            "A message that was published twice has two ids; let the publisher add a key, and set that.",
        ),
    ),
)
