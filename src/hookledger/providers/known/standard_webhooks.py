"""Standard Webhooks 1.0.0, symmetric signatures (v1)."""

from __future__ import annotations

from .contract import Contract, body, header
from .schemes import Hmac, Timestamp

CONTRACT = Contract(
    name="standard_webhooks",
    title="Standard Webhooks",
    scheme=Hmac(
        header=b"webhook-signature",  # v1,<base64>[ v1,<base64>][ v1a,<base64>]
        separator=b" ",
        prefix=b"v1,",
        encoding="base64",
        timestamp=Timestamp(header=b"webhook-timestamp", tolerance=300),
        id_header=b"webhook-id",
        message="{id}.{ts}.{body}",
        key="base64",
        key_prefix="whsec_",
        min_key=16,  # the specification says 24; older senders made 16
    ),
    id=header("webhook-id"),
    type=(body("type"),),
    object_id=(body("data.id"),),
    occurred_at=body("timestamp"),
    retry_hours=76,
)
