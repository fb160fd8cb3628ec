"""Plaid: hints that something changed, signed as a JWT over the body's digest."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.jwt import Jwt

CONTRACTS = (
    Contract(
        name="plaid",
        title="Plaid",
        scheme=Jwt(
            header=b"plaid-verification",
            prefix=b"",
            alg="ES256",
            ask="https://production.plaid.com/webhook_verification_key/get",
            body_claim="request_body_sha256",
            expires=False,
            tolerance=90000,  # Plaid's advice is 5 minutes; it retries for a day
            unset=True,
        ),
        secret="the client's secret, which fetches Plaid's keys",
        options=("client_id", "ask"),
        # Nothing in the body distinguishes two events: SYNC_UPDATES_AVAILABLE of one item, or TRANSFER_EVENTS_UPDATE,
        # is the same each time. As a duplicate, the second would be lost.
        hint=True,
        type=(body("webhook_type"), body("webhook_code")),
        object_id=(body("item_id"), body("transfer_id"), body("payment_id"), body("identity_verification_id")),
        answer=Answer(200),
        deadline=10,
        retries=Retries(
            automatic=True,
            hours=24,
            schedule="6 retries, the first after 30s, each four times later; 429 with Retry-After of up to 4h",
            disables="does not retry while more than nine in ten are rejected within a day",
            why="Plaid does not say; that it advises 5 minutes suggests it",
        ),
        lister=Lister(list="/transactions/sync and /transfer/event/sync, by cursor"),
        confirmed=Confirmed(
            signature="docs",
            event="quoted",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=("plaid-openapi, and a client made from it", "plaid.com: webhooks, webhook verification"),
        ),
        notes=(
            "Each arrival is an event, also a retry and a captured request: let the handler fetch by cursor, which "
            "is safe to repeat.",
            "In the sandbox set ask to https://sandbox.plaid.com/webhook_verification_key/get.",
        ),
    ),
)
