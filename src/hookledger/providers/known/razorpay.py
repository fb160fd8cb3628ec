"""Razorpay: payments, orders, subscriptions, refunds and payouts."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="razorpay",
        title="Razorpay",
        scheme=Hmac(header=b"x-razorpay-signature"),
        secret="the webhook's secret, as text",
        id=header("X-Razorpay-Event-Id"),
        type=(body("event"),),
        # An event includes related entities, nearly always a payment: its own object comes first here.
        object_id=(
            body("payload.refund.entity.id"),
            body("payload.dispute.entity.id"),
            body("payload.settlement.entity.id"),
            body("payload.subscription.entity.id"),
            body("payload.invoice.entity.id"),
            body("payload.payment_link.entity.id"),
            body("payload.qr_code.entity.id"),
            body("payload.virtual_account.entity.id"),
            body("payload.transfer.entity.id"),
            body("payload.payout.entity.id"),
            body("payload.order.entity.id"),
            body("payload.payment.entity.id"),
        ),
        occurred_at=body("created_at"),
        deadline=5,
        retries=Retries(
            automatic=True,
            hours=24,
            schedule="exponential",
            disables="disables the endpoint after 24 hours of failure",
        ),
        lister=Lister(list="payments, orders and refunds themselves: there is no list of events"),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="memory",
            sources=("razorpay 2.0.1: utility.py", "razorpay/markdown-docs: webhooks"),
        ),
        notes=(
            "The event id is in an unsigned header: a known body under another id is quarantined as `same body`.",
            "Events that are retried after the secret was changed are still signed with the old one: keep both for a "
            "day.",
        ),
    ),
)
