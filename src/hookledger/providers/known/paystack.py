"""Paystack: charges, transfers, refunds and subscriptions."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="paystack",
        title="Paystack",
        scheme=Hmac(header=b"x-paystack-signature", alg="sha512"),
        secret="the API's secret key itself, sk_live_… or sk_test_…",
        # No id. Charges and transfers have both fields and reach each type once; some others repeat for one object
        # (reminders of a dispute, updates of an invoice), so their whole content identifies them.
        key=(body("event"), body("data.id"), body("data.reference")),
        type=(body("event"),),
        object_id=(
            body("data.reference"),
            body("data.id"),
            body("data.subscription_code"),
            body("data.invoice_code"),
            body("data.customer_code"),
        ),
        occurred_at=body("data.paid_at"),
        answer=Answer(200),
        deadline=30,
        retries=Retries(
            automatic=True,
            hours=72,
            schedule="every 3 minutes for 4 attempts, then hourly; in test mode for 10 hours",
        ),
        lister=Lister(list="GET /transaction, GET /transfer: there is no list of events"),
        confirmed=Confirmed(
            signature="quoted",
            event="memory",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=("Paystack's documentation, quoted by others",),
        ),
        notes=(
            "The webhook's key is the API's secret key, and changes with it: anyone who can verify can call the API.",
            "Anything but 200 counts as a failure. No time is signed.",
        ),
    ),
)
