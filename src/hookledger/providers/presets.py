"""Schemes that several providers share."""

from __future__ import annotations

from .schemes.base import KeyForm
from .schemes.hmac import Hmac
from .schemes.times import Timestamp


def standard_webhooks(
    *, prefix: str = "webhook", key: KeyForm = "base64", min_key: int = 16, tolerance: float = 300
) -> Hmac:
    """Return Standard Webhooks 1.0.0 with symmetric signatures (v1). Svix uses its own prefix for the headers."""
    return Hmac(
        header=f"{prefix}-signature".encode(),  # v1,<base64>[ v1,<base64>][ v1a,<base64>]
        separator=b" ",
        prefix=b"v1,",
        encoding="base64",
        timestamp=Timestamp(header=f"{prefix}-timestamp".encode(), tolerance=tolerance),
        id_header=f"{prefix}-id".encode(),
        message="{id}.{ts}.{body}",
        key=key,
        key_prefix="whsec_" if key == "base64" else "",
        min_key=min_key,  # the specification requires 24; older senders use 16
    )
