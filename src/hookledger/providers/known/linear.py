"""Linear: changes of issues, comments, projects and the like."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="linear",
        title="Linear",
        scheme=Hmac(
            header=b"linear-signature",
            # Linear's client allows 60 seconds, which would reject every retry. Identities stop replayed requests.
            timestamp=Timestamp(body=("webhookTimestamp",), unit="ms", tolerance=7.25 * 3600),
        ),
        secret="the webhook's signing secret, as text",
        id=header("Linear-Delivery"),
        stable="unknown",
        type=(body("type"), body("action")),
        object_id=(body("data.id"),),
        occurred_at=body("createdAt"),
        delivery_id=header("Linear-Delivery"),
        volatile=(body("webhookTimestamp"),),
        answer=Answer(status=200),
        deadline=5,
        retries=Retries(
            automatic=True,
            hours=7.02,
            schedule="after 1 minute, 1 hour, 6 hours",
            disables="may disable the endpoint",
            signs_each_attempt="no",
            why="a retry was seen to be the same bytes, with the first webhookTimestamp",
        ),
        confirmed=Confirmed(
            signature="run",
            event="quoted",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=(
                "@linear/sdk 98.0.0: webhooks/client.ts",
                "Linear's documentation, quoted by others",
                "vercel/eve issue 1570: retries refused for their time",
            ),
        ),
        notes=(
            "The headers Linear-Timestamp, Linear-Event and Linear-Delivery are not signed: time and type are read "
            "from the body, which also identifies the event.",
        ),
    ),
)
