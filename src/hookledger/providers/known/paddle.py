"""Paddle Billing."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="paddle",
        title="Paddle Billing",
        scheme=Hmac(
            header=b"paddle-signature",  # ts=<seconds>;h1=<hex>[;h1=<hex>]
            separator=b";",
            prefix=b"h1=",
            # Paddle's libraries allow 5 seconds; it retries for three days.
            timestamp=Timestamp(prefix=b"ts=", tolerance=73 * 3600),
            message="{ts}:{body}",
        ),
        secret="the destination's secret key, pdl_ntfset_…: all of it is the key",
        id=body("event_id"),
        type=(body("event_type"),),
        object_id=(body("data.id"),),
        occurred_at=body("occurred_at"),
        delivery_id=body("notification_id"),
        volatile=(body("notification_id"),),  # one for each destination, and a new one for each replay
        answer=Answer(200),
        deadline=5,
        retries=Retries(
            automatic=True,
            hours=72,
            schedule="60 retries, exponential; in the sandbox 3 in 15 minutes",
            why="Paddle does not say; that its libraries allow 5 seconds suggests it",
        ),
        lister=Lister(list="GET /events", days=90, redeliver="POST /notifications/{id}/replay, or dashboard"),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="code",
            sources=("paddle-python-sdk 1.16.1", "developer.paddle.com: webhooks, changelog on retention"),
        ),
        notes=("Paddle Classic signs differently and is not supported here.",),
    ),
)
