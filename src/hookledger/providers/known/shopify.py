"""Shopify: the webhooks of apps and shops."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="shopify",
        title="Shopify",
        scheme=Hmac(header=b"x-shopify-hmac-sha256", encoding="base64"),
        secret="the app's client secret, as text",
        id=header("X-Shopify-Event-Id"),
        # One action of a merchant may give several topics under one event id, and the topic is in no body.
        key=(header("X-Shopify-Event-Id"), header("X-Shopify-Topic")),
        type=(header("X-Shopify-Topic"),),
        object_id=(body("admin_graphql_api_id"), body("id")),
        occurred_at=header("X-Shopify-Triggered-At"),
        delivery_id=header("X-Shopify-Webhook-Id"),
        # Bodies of a few ids and no time: what is done, undone and done again reads the same both times.
        repeatable=frozenset(
            {
                "app/uninstalled",
                "collection_listings/remove",
                "customers/redact",
                "inventory_levels/disconnect",
                "product_listings/remove",
                "shop/redact",
            }
        ),
        deadline=5,
        retries=Retries(
            automatic=True,
            hours=4,
            schedule="8 retries at growing intervals, with the first payload",
            disables="a subscription made over the Admin API is removed after 8 failures in a row",
        ),
        lister=Lister(list="the resources themselves, by updated_at: there is no list of events"),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="quoted",
            retry="docs",
            reconcile="docs",
            sources=("shopify.dev: duplicates, verification, changelog of 2024-09-10", "@shopify/shopify-api 13.1.0"),
        ),
        notes=(
            "Only the body is signed: neither the event id nor the topic is, nor the shop's domain. Take the shop "
            "from the body where it has one.",
            "Two subscriptions to one topic share the event id: with different fields they show as a conflict, so "
            "give each a source of its own.",
            "Retries end after four hours; 48 hours was the rule until September 2024.",
            "A connection that takes more than a second counts as a failure.",
        ),
    ),
)
