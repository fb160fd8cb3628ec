"""WorkOS: events of directories, connections and users."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="workos",
        title="WorkOS",
        scheme=Hmac(
            header=b"workos-signature",  # t=<milliseconds>, v1=<hex>
            separator=b", ",
            prefix=b"v1=",
            # WorkOS' own client allows 180 seconds; it retries for three days.
            timestamp=Timestamp(prefix=b"t=", unit="ms", tolerance=73 * 3600),
            message="{ts}.{body}",
        ),
        secret="the endpoint's signing secret, as text",
        id=body("id"),
        type=(body("event"),),
        object_id=(body("data.id"),),
        occurred_at=body("created_at"),
        answer=Answer(status=200),
        retries=Retries(
            automatic=True,
            hours=72,
            schedule="exponential",
            why="WorkOS does not say; that its client allows 180 seconds suggests it",
        ),
        lister=Lister(list="GET /events, after a cursor; about 90 days, unconfirmed"),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            response="memory",
            retry="memory",
            reconcile="code",
            sources=("workos 10.6.0: webhooks/_verification.py",),
        ),
        notes=("The signed time is in milliseconds, unlike Stripe's, whose header has the same form.",),
    ),
)
