"""WooCommerce: webhooks of a shop."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries, Shared
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.hmac import Hmac

# The body is created when it is sent, so a creation and the change after it often have the same body.
SHARED = (
    Shared("coupon", frozenset({"coupon.created", "coupon.updated", "coupon.restored"})),
    Shared("customer", frozenset({"customer.created", "customer.updated"})),
    # Only an id, and customers have their own numbers.
    Shared("deleted", frozenset({"coupon.deleted", "customer.deleted", "order.deleted", "product.deleted"})),
    Shared("order", frozenset({"order.created", "order.updated", "order.restored"})),
    Shared("product", frozenset({"product.created", "product.updated", "product.restored"})),
)

CONTRACTS = (
    Contract(
        name="woocommerce",
        title="WooCommerce",
        scheme=Hmac(header=b"x-wc-webhook-signature", encoding="base64"),
        secret="the webhook's secret, as text",
        # No key. The delivery id is made of the webhook and the second, so events of that second share it; two
        # changes of one order may share date_modified. Nothing is redelivered, so topic and whole body identify the
        # event: another state of the order is another event.
        type=(header("X-WC-Webhook-Topic"),),
        object_id=(body("id"),),
        occurred_at=body("date_modified_gmt"),
        delivery_id=header("X-WC-Webhook-Delivery-ID"),
        types=frozenset[str]().union(*(group.types for group in SHARED)),
        shared=SHARED,
        max_body=4 * MIB,
        deadline=60,
        handshakes=(Handshake(method="POST", when=(), body=r"webhook_id=[0-9]{1,20}", status=200),),
        retries=Retries(
            automatic=False,
            hours=0,
            schedule="never",
            disables="disables the endpoint after more than 5 failures in a row",
        ),
        lister=Lister(list="GET /wp-json/wc/v3/orders?modified_after=…"),
        confirmed=Confirmed(
            signature="code",
            event="code",
            handshake="code",
            response="code",
            retry="code",
            reconcile="memory",
            sources=("woocommerce: class-wc-webhook.php",),
        ),
        notes=(
            "There are no retries, and six failures in a row disable the webhook: list the orders after an outage.",
            "The ping at its creation is not signed. Hookledger answers it and does not record it.",
            "The topic is in an unsigned header: a known body is accepted once as each topic that may share it "
            "(created, updated, restored), and quarantined as any other.",
            "A deletion has only an id, so it is accepted once per kind of object. A topic of your own action has "
            "its arguments: a second one with the same body is quarantined as `same body`.",
            "Characters such as & and < in the secret are used as such, not HTML-escaped.",
        ),
    ),
)
