"""WooCommerce: webhooks of a shop."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.hmac import Hmac

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
        max_body=4 * MIB,
        deadline=60,
        handshakes=(Handshake(method="POST", when=(), body=r"webhook_id=[0-9]{1,20}", status=200),),
        retries=Retries(automatic=False, hours=0, schedule="never", disables="after more than 5 failures in a row"),
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
            "The topic is in a header that is not signed: whoever captured a request can send its body as another.",
            "A deletion says only an id, and a topic of your own action what it was called with: the second one in "
            "the same words is kept as a known body under another id, to be admitted.",
            "Characters such as & and < in the secret are signed as such, not as HTML shows them.",
        ),
    ),
)
