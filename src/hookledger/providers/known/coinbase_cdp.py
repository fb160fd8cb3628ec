"""Coinbase Developer Platform: onramp, wallets and payments."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

CONTRACTS = (
    Contract(
        name="coinbase_cdp",
        title="Coinbase Developer Platform",
        scheme=Hmac(
            header=b"x-hook0-signature",  # t=<seconds>,v0=<hex>,h=<header names>,v1=<hex>
            separator=b",",
            prefix=b"v1=",  # v0 leaves the headers out
            timestamp=Timestamp(prefix=b"t=", tolerance=300),
            message="{ts}.{headers}.{body}",
        ),
        secret="the subscription's secret, as text",
        id=header("X-Event-Id"),
        stable="unknown",
        type=(header("X-Event-Type"),),
        object_id=(body("transactionId"),),
        retries=Retries(),
        confirmed=Confirmed(
            signature="docs",
            event="docs",
            response="memory",
            retry="memory",
            reconcile="memory",
            sources=("docs.cdp.coinbase.com: verify signatures, payment acceptance, onramp webhooks",),
        ),
        notes=(
            "Which headers are signed is up to each request, so the event id counts as unsigned and the body backs "
            "it, although Coinbase does sign it.",
            "How it retries, and whether a retry has the same event id, is not known.",
        ),
    ),
)
