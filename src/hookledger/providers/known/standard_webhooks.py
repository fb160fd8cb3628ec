"""Standard Webhooks 1.0.0: the presets for senders that follow the specification."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries
from ..fields import body, header
from ..presets import standard_webhooks
from ..schemes.public_key import PublicKey
from ..schemes.times import Timestamp

RETRIES = Retries(
    automatic=True,
    schedule="for example 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h",
    disables="the specification advises to disable an endpoint that keeps failing",
    signs_each_attempt="yes",
    why="the specification says that every retry has the time of that attempt",
)
NOTES = (
    "410 disables the endpoint; a redirect counts as a failure.",
    "Each sender chooses how long it retries: the schedule is the specification's example.",
)

CONTRACTS = (
    Contract(
        name="standard_webhooks",
        title="Standard Webhooks",
        scheme=standard_webhooks(),
        secret="whsec_ and the key in base64",
        id=header("webhook-id"),
        type=(body("type"),),
        object_id=(body("data.id"),),
        occurred_at=body("timestamp"),
        retries=RETRIES,
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            sources=("the specification, 1.0.0", "standardwebhooks 1.1.0"),
        ),
        notes=NOTES,
    ),
    Contract(
        name="standard_webhooks_v1a",
        title="Standard Webhooks, asymmetric",
        scheme=PublicKey(
            header=b"webhook-signature",  # v1a,<base64>[ v1a,<base64>][ v1,<base64>]
            alg="ed25519",
            message="{id}.{ts}.{body}",
            prefix=b"v1a,",
            separator=b" ",
            timestamp=Timestamp(header=b"webhook-timestamp", tolerance=300),
            id_header=b"webhook-id",
            key_prefix="whpk_",
        ),
        secret="the sender's public key: whpk_ and its 32 bytes in base64",
        id=header("webhook-id"),
        type=(body("type"),),
        object_id=(body("data.id"),),
        occurred_at=body("timestamp"),
        retries=RETRIES,
        confirmed=Confirmed(
            signature="docs", event="docs", response="docs", retry="docs", sources=("the specification, 1.0.0",)
        ),
        notes=NOTES,
    ),
)
