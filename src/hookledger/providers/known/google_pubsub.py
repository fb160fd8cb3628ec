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
            tolerance=3660,  # a token lives for an hour, and serves many requests
        ),
        options=("email",),
        secret="the audience of the subscription",
        id=body("message.messageId"),
        key=(body("subscription"), body("message.messageId")),  # the id is unique within a topic
        # Attributes are the publisher's own; Cloud Storage and others call their type so.
        type=(Constant("message"), body("message.attributes.eventType")),
        object_id=(body("message.orderingKey"), body("message.attributes.objectId")),
        occurred_at=body("message.publishTime"),
        volatile=(body("deliveryAttempt"),),
        max_body=16 * MIB,  # 10 MB, as base64
        retries=Retries(automatic=True, hours=168, schedule="until it is acknowledged, or the retention ends"),
        lister=Lister(list="a snapshot, or a pull subscription of the topic; 7 days unless set", redeliver="seek"),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            response="quoted",
            retry="memory",
            reconcile="memory",
            sources=("GoogleCloudPlatform/python-docs-samples: pubsub", "google-auth 2.62.2"),
        ),
        notes=(
            "The token says who sends and nothing about the message.",
            "Set email to the service account of the subscription: anyone can get a token for your audience.",
            "Leave payload unwrapping off: the message's id would come in a header, or not at all.",
            "A message that was published twice has two ids; let the publisher add a key, and set that.",
        ),
    ),
)
