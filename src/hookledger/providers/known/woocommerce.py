"""WooCommerce: webhooks of a shop."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries, Shared
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.hmac import Hmac

# The body is made when it is sent, so a creation and the change that followed it often say the same.
SHARED = (
    Shared("coupon", frozenset({"coupon.created", "coupon.updated", "coupon.restored"})),
    Shared("customer", frozenset({"customer.created", "customer.updated"})),
    # An id alone, and customers are counted apart from the rest.
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
        # No key. The delivery id is made of the webhook and the second, so it is shared by what happens in that
        # second; so is date_modified, by two changes of one order. Nothing is ever sent again, so the topic and the
        # whole body stand for the event: another state of the order is another event.
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
            "The ping at its creation is not signed. It is answered and not recorded.",
            "The topic is in a header that is not signed: a known body is accepted once as each topic that may share "
            "it (created, updated, restored), and quarantined as any other.",
            "A deletion says only an id, so it is accepted once for each kind of object, and a topic of your own "
            "action says what it was called with: the second one in the same words is quarantined as `same body`.",
            "Characters such as & and < in the secret are signed as such, not as HTML shows them.",
        ),
    ),
)
