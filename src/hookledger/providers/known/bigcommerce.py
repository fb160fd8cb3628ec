"""BigCommerce: store events, each a hint to fetch the resource."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body, header
from ..presets import standard_webhooks

CONTRACTS = (
    Contract(
        name="bigcommerce",
        title="BigCommerce",
        scheme=standard_webhooks(key="utf8", tolerance=49 * 3600),
        secret="the app's client secret, as text: it is the key itself",
        # Not body.hash, the payload's digest: a later identical payload has the same hash.
        id=header("webhook-id"),
        type=(body("scope"),),
        object_id=(body("data.id"),),
        occurred_at=body("created_at"),
        answer=Answer(200, b""),
        retries=Retries(
            automatic=True,
            hours=48.07,
            schedule="1m, 3m, 5m, 10m, 15m, 30m, 1h, 2h, 6h, 14h, 24h",
            disables="disables the hook after the last retry; holds a failing domain back with all its hooks",
            why="not documented; Standard Webhooks, which it follows, gives every retry the time of that attempt",
        ),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="docs",
            sources=("bigcommerce/docs: integrations/webhooks", "standardwebhooks 1.1.0, by BigCommerce's recipe"),
        ),
        notes=(
            "The body names the resource and does not contain it: fetch it by data.id.",
            "BigCommerce's recipe encodes the client secret in base64 only because the library decodes it: set it "
            "unencoded.",
        ),
    ),
)
