"""Coinbase Developer Platform: onramp, wallets and payments."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries, names
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
        types=names(
            """
            onramp.transaction.created onramp.transaction.updated onramp.transaction.success onramp.transaction.failed
            offramp.transaction.created offramp.transaction.updated offramp.transaction.success
            offramp.transaction.failed onchain.activity.detected wallet.activity.detected
            """
        ),
        retries=Retries(
            signs_each_attempt="yes",
            why="Hook0, which it sends through, signs when it sends: read in Hook0's worker",
        ),
        confirmed=Confirmed(
            signature="docs",
            event="docs",
            response="memory",
            retry="memory",
            reconcile="memory",
            sources=(
                "docs.cdp.coinbase.com: verify signatures, payment acceptance, onramp webhooks",
                "hook0: output-worker, work.rs",
            ),
        ),
        notes=(
            "Which headers are signed is up to each request, so event id and type count as unsigned, although "
            "Coinbase does sign them: a known body under another id or type is quarantined.",
            "It is unknown how it retries, and whether a retry has the same event id.",
        ),
    ),
)
