"""Made-up deliveries of shops, payment providers and the services around them, in the shape of the real ones."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tests.providers.example import Example

MOMENT = "2025-11-13T01:30:00Z"
AT = 1762997400
"""The same in Unix seconds."""

WHSEC = "whsec_bWFkZSB1cCBmb3IgYSB0ZXN0LCAzMiBieXRlcyEh"
HEX_KEY = "6d61646520757020666f72206120746573742c20333220627974657321212121"
ED25519 = "whpk_t5g1hfpODlbunANFSGbbLaUA9j65nFxYMhQgkpN3yCQ="
P256 = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqbgb+JOBHYefPArEIwBJA+R/sYQL1JbOKanB7Ky/udxNmaftn1AQVMCLDujF3gupDwYnUoxWkzbO"
    "/gS4dpazYg=="
)

OPTIONS: dict[str, dict[str, object]] = {"plaid": {"client_id": "made-up-client"}}


class Change(Struct, frozen=True, kw_only=True):
    """What another delivery has differently: fields of the body by their way to them, and headers."""

    body: dict[str, Any] = {}
    headers: dict[str, str] = {}


NOTHING = Change()


def _adyen_item(**rest: Any) -> dict[str, Any]:
    item = {
        "additionalData": {"authCode": "000000"},
        "amount": {"currency": "EUR", "value": 1130},
        "eventCode": "AUTHORISATION",
        "eventDate": "2025-11-13T02:30:00+01:00",
        "merchantAccountCode": "MadeUpShop",
        "merchantReference": "order-1001",
        "paymentMethod": "visa",
        "pspReference": "MADEUPPSP0000001",
        "reason": "000000:1111:03/2030",
        "success": "true",
    }
    return {"NotificationRequestItem": {**item, **rest}}


EXAMPLES: list[Example] = [
    # ── shops ──
    Example(
        contract="shopify",
        secret="shpss_made_up_secret",
        body={"id": 1001, "admin_graphql_api_id": "gid://shopify/Order/1001", "updated_at": MOMENT, "total": "9.00"},
        headers={
            "X-Shopify-Event-Id": "ev-0001",
            "X-Shopify-Topic": "orders/create",
            "X-Shopify-Triggered-At": "2025-11-13T01:30:00.000000000Z",
            "X-Shopify-Webhook-Id": "wh-0001",
            "X-Shopify-Shop-Domain": "made-up.myshopify.com",
        },
        expects=[
            {
                "type": "orders/create",
                "key": "ev-0001:orders/create",
                "key_origin": "composite",
                "provider_id": "ev-0001",
                "object_id": "gid://shopify/Order/1001",
                "delivery_id": "wh-0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="bigcommerce",
        secret="made-up-client-secret",
        body={
            "store_id": "1001",
            "producer": "stores/madeup",
            "scope": "store/order/updated",
            "data": {"type": "order", "id": 250},
            "hash": "dd70c0976e06b67aaf671e73f49dcb79230ebf9d",
            "created_at": AT,
        },
        headers={"webhook-id": "msg_bc_1"},
        expects=[
            {
                "type": "store/order/updated",
                "key": "msg_bc_1",
                "key_origin": "signed_id",
                "object_id": "250",
                "occurred_at": AT,
            }
        ],
    ),
    # ── conversations ──
    Example(
        contract="slack_events",
        secret="8f742231b10e8888abcd99yyyzzz85a5",
        body={
            "token": "made-up",
            "team_id": "T0001",
            "api_app_id": "A0001",
            "event": {
                "type": "message",
                "channel": "C0001",
                "user": "U0001",
                "text": "hello",
                "ts": "1762997400.0001",
            },
            "type": "event_callback",
            "event_id": "Ev0001",
            "event_time": AT,
        },
        expects=[
            {"type": "message", "key": "Ev0001", "key_origin": "signed_id", "object_id": "C0001", "occurred_at": AT}
        ],
    ),
    Example(
        contract="slack_commands",
        secret="8f742231b10e8888abcd99yyyzzz85a5",
        body={
            "command": "/deploy",
            "text": "shop to production",
            "team_id": "T0001",
            "channel_id": "C0001",
            "user_id": "U0001",
            "response_url": "https://hooks.slack.example/commands/1",
            "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        },
        expects=[
            {
                "type": "/deploy",
                "key": "13345224609.738474920.8088930838d88f008e0",
                "key_origin": "signed_id",
                "object_id": "C0001",
            }
        ],
    ),
    Example(
        contract="slack_interactions",
        secret="8f742231b10e8888abcd99yyyzzz85a5",
        body={
            "type": "block_actions",
            "user": {"id": "U0001"},
            "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
            "container": {"type": "message", "message_ts": "1762997400.0001", "channel_id": "C0001"},
            "actions": [{"action_id": "approve", "value": "1001", "action_ts": "1762997400.123456"}],
        },
        expects=[
            {
                "type": "block_actions",
                "key": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
                "object_id": "1762997400.0001",
            }
        ],
    ),
    Example(
        contract="twilio",
        secret="made_up_auth_token",
        body={
            "AccountSid": "AC0001",
            "MessageSid": "SM0001",
            "MessageStatus": "delivered",
            "SmsSid": "SM0001",
            "SmsStatus": "delivered",
            "To": "+15550100",
        },
        query="shop=one",
        headers={"I-Twilio-Idempotency-Token": "token-1"},
        expects=[
            {
                "type": "MessageStatus.delivered",
                "key": "SM0001:delivered",
                "key_origin": "composite",
                "object_id": "SM0001",
                "delivery_id": "token-1",
            }
        ],
    ),
    Example(
        contract="twilio",
        secret="made_up_auth_token",
        body={"AccountSid": "AC0001", "CallSid": "CA0001", "CallStatus": "in-progress", "Digits": "1"},
        expects=[{"type": "CallStatus.in-progress", "key_origin": "digest", "object_id": "CA0001"}],
    ),
    Example(
        contract="twilio",
        secret="made_up_auth_token",
        body={"MessageSid": "SM0002", "SmsStatus": "received", "Body": "hello", "From": "+15550101"},
        expects=[{"type": "SmsStatus", "key_origin": "digest", "object_id": "SM0002"}],
    ),
    Example(
        contract="twilio_voice",
        secret="made_up_auth_token",
        body={
            "AccountSid": "AC0001",
            "ApiVersion": "2010-04-01",
            "CallSid": "CA0001",
            "CallStatus": "in-progress",
            "Digits": "1",
            "Direction": "inbound",
            "From": "+15550101",
            "To": "+15550100",
        },
        headers={"I-Twilio-Idempotency-Token": "token-1"},
        expects=[
            {
                "type": "CallStatus.in-progress",
                "key": "CA0001:token-1",
                "key_origin": "composite",
                "object_id": "CA0001",
                "delivery_id": "token-1",
            }
        ],
    ),
    Example(
        contract="twilio_json",
        secret="made_up_auth_token",
        body=[
            {
                "specversion": "1.0",
                "type": "com.twilio.messaging.message.delivered",
                "source": "/2010-04-01/Accounts/AC0001/Messages/SM0001.json",
                "id": "EZ0001",
                "time": MOMENT,
                "data": {"messageSid": "SM0001", "messageStatus": "DELIVERED"},
            }
        ],
        expects=[
            {
                "type": "com.twilio.messaging.message.delivered",
                "key": "EZ0001",
                "key_origin": "signed_id",
                "object_id": "SM0001",
                "occurred_at": AT,
            }
        ],
    ),
    # ── Standard Webhooks and those who follow it ──
    *[
        Example(
            contract=name,
            secret=secret,
            body={"type": "invoice.paid", "timestamp": MOMENT, "data": {"id": "in_0001"}},
            headers={header: "msg_0001"},
            expects=[
                {
                    "type": "invoice.paid",
                    "key": "msg_0001",
                    "key_origin": "signed_id",
                    "object_id": "in_0001",
                    "occurred_at": AT,
                }
            ],
        )
        for name, secret, header in (
            ("svix", WHSEC, "svix-id"),
            ("standard_webhooks", WHSEC, "webhook-id"),
            ("standard_webhooks_v1a", ED25519, "webhook-id"),
        )
    ],
    Example(
        contract="clerk",
        secret=WHSEC,
        body={"object": "event", "type": "user.updated", "timestamp": AT * 1000 + 250, "data": {"id": "user_0001"}},
        headers={"svix-id": "msg_clerk_1"},
        expects=[{"type": "user.updated", "key": "msg_clerk_1", "object_id": "user_0001", "occurred_at": AT + 0.25}],
    ),
    Example(
        contract="resend",
        secret=WHSEC,
        body={"type": "email.opened", "created_at": MOMENT, "data": {"email_id": "em-0001", "to": ["a@example.com"]}},
        headers={"svix-id": "msg_resend_1"},
        expects=[{"type": "email.opened", "key": "msg_resend_1", "object_id": "em-0001", "occurred_at": AT}],
    ),
    Example(
        contract="openai",
        secret=WHSEC,
        body={
            "id": "evt_0001",
            "object": "event",
            "type": "response.completed",
            "created_at": AT,
            "data": {"id": "resp_0001"},
        },
        headers={"webhook-id": "wh_0001"},
        expects=[{"type": "response.completed", "key": "wh_0001", "object_id": "resp_0001", "occurred_at": AT}],
    ),
    Example(
        contract="anthropic",
        secret=WHSEC,
        body={
            "id": "event_0001",
            "type": "event",
            "created_at": MOMENT,
            "data": {"id": "session_0001", "type": "session.status_idled"},
        },
        expects=[
            {
                "type": "session.status_idled",
                "key": "event_0001",
                "key_origin": "signed_id",
                "object_id": "session_0001",
                "occurred_at": AT,
            }
        ],
    ),
    *[
        Example(
            contract=name,
            secret=secret,
            body={
                "object_kind": "merge_request",
                "project": {"id": 7},
                "object_attributes": {"id": 99, "action": "open", "updated_at": MOMENT},
            },
            headers={header: "key-0001", "X-Gitlab-Event": "Merge Request Hook", "X-Gitlab-Webhook-UUID": "uuid-1"},
            expects=[
                {
                    "type": "Merge Request Hook.open",
                    "key": "key-0001",
                    "key_origin": origin,
                    "object_id": "99",
                    "delivery_id": "uuid-1",
                    "occurred_at": AT,
                }
            ],
        )
        for name, secret, header, origin in (
            ("gitlab", "made-up-token", "Idempotency-Key", "unsigned_id"),
            ("gitlab_signed", WHSEC, "webhook-id", "signed_id"),
        )
    ],
    # ── payments ──
    Example(
        contract="paypal",
        secret="0EH40505U7160970P",
        body={
            "id": "WH-MADE-UP-0001",
            "create_time": MOMENT,
            "event_type": "PAYMENT.CAPTURE.COMPLETED",
            "resource_type": "capture",
            "resource": {"id": "CAP0001", "status": "COMPLETED"},
        },
        headers={"PAYPAL-TRANSMISSION-ID": "tx-0001"},
        expects=[
            {
                "type": "PAYMENT.CAPTURE.COMPLETED",
                "key": "WH-MADE-UP-0001",
                "key_origin": "unsigned_id",
                "object_id": "CAP0001",
                "delivery_id": "tx-0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="square",
        secret="made-up-signature-key",
        body={
            "merchant_id": "ML0001",
            "type": "payment.updated",
            "event_id": "ev-sq-0001",
            "created_at": MOMENT,
            "data": {"type": "payment", "id": "pay0001", "object": {"payment": {"status": "COMPLETED"}}},
        },
        expects=[
            {
                "type": "payment.updated",
                "key": "ev-sq-0001",
                "key_origin": "signed_id",
                "object_id": "pay0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="adyen",
        secret=HEX_KEY,
        body={
            "createdAt": "2025-11-13T02:30:00+01:00",
            "environment": "test",
            "eventId": "MADEUPPSP0000002",
            "type": "recurring.token.created",
            "data": {"merchantAccount": "MadeUpShop", "storedPaymentMethodId": "M0001", "type": "visa"},
        },
        expects=[
            {
                "type": "recurring.token.created",
                "key": "recurring.token.created:MADEUPPSP0000002",
                "key_origin": "composite",
                "object_id": "M0001",
                "provider_id": "MADEUPPSP0000002",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="adyen",
        secret=HEX_KEY,
        body={
            "environment": "test",
            "type": "balancePlatform.accountHolder.updated",
            "timestamp": MOMENT,
            "data": {"balancePlatform": "MadeUp", "accountHolder": {"id": "AH0001", "status": "active"}},
        },
        expects=[{"type": "balancePlatform.accountHolder.updated", "key_origin": "digest", "object_id": "AH0001"}],
    ),
    Example(
        contract="adyen_classic",
        secret=HEX_KEY,
        body={
            "live": "false",
            "notificationItems": [_adyen_item(), _adyen_item(eventCode="CAPTURE", pspReference="MADEUPPSP0000003")],
        },
        expects=[
            {
                "type": "AUTHORISATION",
                "key": "MADEUPPSP0000001:AUTHORISATION:true",
                "key_origin": "composite",
                "object_id": "MADEUPPSP0000001",
                "occurred_at": AT,
            },
            {"type": "CAPTURE", "key": "MADEUPPSP0000003:CAPTURE:true"},
        ],
    ),
    Example(
        contract="paddle",
        secret="pdl_ntfset_made_up",
        body={
            "event_id": "evt_0001",
            "event_type": "transaction.completed",
            "occurred_at": "2025-11-13T01:30:00.000000Z",
            "notification_id": "ntf_0001",
            "data": {"id": "txn_0001", "status": "completed"},
        },
        expects=[
            {
                "type": "transaction.completed",
                "key": "evt_0001",
                "key_origin": "signed_id",
                "object_id": "txn_0001",
                "delivery_id": "ntf_0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="braintree",
        secret="made_up_public:made_up_private",
        body={
            "timestamp": MOMENT,
            "kind": "subscription_charged_successfully",
            "subject": {"subscription": {"id": "sub0001", "status": "Active", "transactions": {}}},
        },
        expects=[
            {
                "type": "subscription_charged_successfully",
                "key_origin": "digest",
                "object_id": "sub0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="gocardless",
        secret="made-up-endpoint-secret",
        body={
            "events": [
                {
                    "id": "EV0001",
                    "created_at": "2025-11-13T01:30:00.000Z",
                    "resource_type": "subscriptions",
                    "action": "payment_created",
                    "links": {"subscription": "SB0001", "payment": "PM0001"},
                    "details": {"cause": "payment_created", "origin": "gocardless"},
                    "metadata": {},
                },
                {
                    "id": "EV0002",
                    "created_at": "2025-11-13T01:30:00.000Z",
                    "resource_type": "payments",
                    "action": "confirmed",
                    "links": {"payment": "PM0002"},
                    "details": {"cause": "payment_confirmed", "origin": "gocardless"},
                    "metadata": {},
                },
            ],
            "meta": {"webhook_id": "WB0001"},
        },
        expects=[
            {
                "type": "subscriptions.payment_created",
                "key": "EV0001",
                "key_origin": "signed_id",
                "object_id": "SB0001",
                "delivery_id": "WB0001",
                "occurred_at": AT,
            },
            {"type": "payments.confirmed", "key": "EV0002", "object_id": "PM0002", "delivery_id": "WB0001"},
        ],
    ),
    Example(
        contract="mollie",
        secret="made-up-signing-secret",
        body={
            "resource": "event",
            "id": "event_0001",
            "type": "payment-link.paid",
            "entityId": "pl_0001",
            "createdAt": MOMENT,
        },
        expects=[
            {
                "type": "payment-link.paid",
                "key": "event_0001",
                "key_origin": "signed_id",
                "object_id": "pl_0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="mollie_classic",
        secret="made-up-word",
        body={"id": "tr_0001"},
        expects=[{"type": "changed", "key_origin": "arrival", "object_id": "tr_0001"}],
    ),
    Example(
        contract="plaid",
        secret="made-up-plaid-secret",
        body={
            "webhook_type": "TRANSACTIONS",
            "webhook_code": "SYNC_UPDATES_AVAILABLE",
            "item_id": "item-0001",
            "initial_update_complete": True,
            "historical_update_complete": True,
            "environment": "production",
        },
        expects=[{"type": "TRANSACTIONS.SYNC_UPDATES_AVAILABLE", "key_origin": "arrival", "object_id": "item-0001"}],
    ),
    Example(
        contract="coinbase_commerce",
        secret="made-up-shared-secret",
        body={
            "id": "0d0e8df1-0000-4000-8000-000000000001",
            "attempt_number": 1,
            "scheduled_for": MOMENT,
            "event": {
                "id": "24934862-0000-4000-8000-000000000001",
                "resource": "event",
                "type": "charge:confirmed",
                "api_version": "2018-03-22",
                "created_at": MOMENT,
                "data": {"id": "2aee9dd1-0000-4000-8000-000000000001", "code": "MADEUP01"},
            },
        },
        expects=[
            {
                "type": "charge:confirmed",
                "key": "24934862-0000-4000-8000-000000000001",
                "key_origin": "signed_id",
                "object_id": "2aee9dd1-0000-4000-8000-000000000001",
                "delivery_id": "0d0e8df1-0000-4000-8000-000000000001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="coinbase_cdp",
        secret="made-up-subscription-secret",
        body={"eventType": "onramp.transaction.updated", "transactionId": "tx-0001", "status": "IN_PROGRESS"},
        headers={"X-Event-Id": "cdp-0001", "X-Event-Type": "onramp.transaction.updated"},
        expects=[
            {
                "type": "onramp.transaction.updated",
                "key": "cdp-0001",
                "key_origin": "unsigned_id",
                "object_id": "tx-0001",
            }
        ],
    ),
    Example(
        contract="razorpay",
        secret="made-up-webhook-secret",
        body={
            "entity": "event",
            "account_id": "acc_0001",
            "event": "order.paid",
            "contains": ["payment", "order"],
            "payload": {"payment": {"entity": {"id": "pay_0001"}}, "order": {"entity": {"id": "order_0001"}}},
            "created_at": AT,
        },
        headers={"X-Razorpay-Event-Id": "rzp-0001"},
        expects=[
            {
                "type": "order.paid",
                "key": "rzp-0001",
                "key_origin": "unsigned_id",
                "object_id": "order_0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="paystack",
        secret="sk_test_made_up",
        body={
            "event": "charge.success",
            "data": {"id": 302961, "reference": "ref-0001", "status": "success", "amount": 10000, "paid_at": MOMENT},
        },
        expects=[
            {
                "type": "charge.success",
                "key": "charge.success:302961:ref-0001",
                "key_origin": "composite",
                "object_id": "ref-0001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="paystack",
        secret="sk_test_made_up",
        body={"event": "invoice.update", "data": {"invoice_code": "INV_0001", "status": "pending", "paid": False}},
        expects=[{"type": "invoice.update", "key_origin": "digest", "object_id": "INV_0001"}],
    ),
    Example(
        contract="lemonsqueezy",
        secret="made-up",
        body={
            "meta": {"event_name": "subscription_updated", "webhook_id": "wh-0001", "test_mode": True},
            "data": {
                "type": "subscriptions",
                "id": "1",
                "attributes": {
                    "status": "active",
                    "updated_at": "2025-11-13T01:30:00.000000Z",
                    "urls": {"customer_portal": "https://shop.example.com/billing?expires=1&signature=a"},
                },
            },
        },
        expects=[{"type": "subscription_updated", "key_origin": "digest", "object_id": "1", "occurred_at": AT}],
    ),
    *[
        Example(
            contract=name,
            secret=secret,
            body={
                "id": "ev_0001",
                "occurred_at": AT,
                "source": "api",
                "object": "event",
                "api_version": "v2",
                "event_type": "payment_succeeded",
                "webhook_status": "scheduled",
                "content": {"transaction": {"id": "txn_0001"}, "subscription": {"id": "sub_0001"}},
            },
            expects=[
                {
                    "type": "payment_succeeded",
                    "key": "ev_0001",
                    "key_origin": "unsigned_id",
                    "object_id": "sub_0001",
                    "occurred_at": AT,
                }
            ],
        )
        for name, secret in (("chargebee", "chargebee:made-up-password"), ("chargebee_key", "made-up-word"))
    ],
    Example(
        contract="recurly",
        secret="made-up-endpoint-key",
        body={
            "id": "made0up1id23",
            "object_type": "subscription",
            "site_id": "made0up1site",
            "event_type": "updated",
            "event_time": MOMENT,
            "uuid": "612bcf671a227b272b753a487fb60001",
        },
        expects=[
            {
                "type": "subscription.updated",
                "key": f"subscription:updated:made0up1id23:{MOMENT}",
                "key_origin": "composite",
                "object_id": "612bcf671a227b272b753a487fb60001",
                "occurred_at": AT,
            }
        ],
    ),
    Example(
        contract="sendgrid",
        secret=P256,
        body=[
            {
                "email": "a@example.com",
                "timestamp": AT,
                "event": "delivered",
                "sg_event_id": "ZGVsaXZlcmVkLTAwMDE",
                "sg_message_id": "14c5d75ce93.made.up",
            },
            {"email": "b@example.com", "timestamp": AT, "event": "bounce", "sg_event_id": "Ym91bmNlLTAwMDE"},
        ],
        expects=[
            {
                "type": "delivered",
                "key": "ZGVsaXZlcmVkLTAwMDE",
                "key_origin": "signed_id",
                "object_id": "14c5d75ce93.made.up",
                "occurred_at": AT,
            },
            {"type": "bounce", "key": "Ym91bmNlLTAwMDE", "object_id": None},
        ],
    ),
]

AGAIN: dict[str, Change] = {
    "shopify": Change(headers={"X-Shopify-Webhook-Id": "wh-0002"}),
    "twilio": NOTHING,
    "gitlab": Change(headers={"X-Gitlab-Webhook-UUID": "uuid-2"}),
    "gitlab_signed": Change(headers={"X-Gitlab-Webhook-UUID": "uuid-2"}),
    "paypal": Change(headers={"PAYPAL-TRANSMISSION-ID": "tx-0002"}),
    "paddle": Change(body={"notification_id": "ntf_0002"}),
    "gocardless": Change(body={"meta.webhook_id": "WB0002"}),
    "coinbase_commerce": Change(
        body={
            "id": "0d0e8df1-0000-4000-8000-000000000002",
            "attempt_number": 2,
            "scheduled_for": "2025-11-13T02:30:00Z",
        }
    ),
    "lemonsqueezy": Change(
        body={
            "meta.webhook_id": "wh-0002",
            "data.attributes.urls": {"customer_portal": "https://shop.example.com/billing?expires=2&signature=b"},
        }
    ),
    "chargebee": Change(body={"webhook_status": "failed", "webhooks": [{"id": "w1", "webhook_status": "failed"}]}),
    "chargebee_key": Change(body={"webhook_status": "failed"}),
}
"""What the provider changes when it delivers the first example of a contract again; nothing where none is named."""

OTHER: dict[str, Change] = {
    "shopify": Change(headers={"X-Shopify-Topic": "orders/paid"}),
    "bigcommerce": Change(headers={"webhook-id": "msg_bc_2"}),  # the same change again: even the hash is the same
    "slack_events": Change(body={"event_id": "Ev0002"}),
    "slack_commands": Change(body={"trigger_id": "13345224609.738474920.another"}),
    "slack_interactions": Change(body={"trigger_id": "12321423423.333649436676.another"}),
    "twilio": Change(body={"MessageStatus": "read", "SmsStatus": "read"}),
    "twilio_voice": Change(headers={"I-Twilio-Idempotency-Token": "token-2"}),
    "twilio_json": Change(body={"0.id": "EZ0002"}),
    "svix": Change(headers={"svix-id": "msg_0002"}),
    "standard_webhooks": Change(headers={"webhook-id": "msg_0002"}),
    "standard_webhooks_v1a": Change(headers={"webhook-id": "msg_0002"}),
    "clerk": Change(headers={"svix-id": "msg_clerk_2"}),
    "resend": Change(headers={"svix-id": "msg_resend_2"}),
    "openai": Change(headers={"webhook-id": "wh_0002"}),
    "anthropic": Change(body={"id": "event_0002"}),
    "gitlab": Change(headers={"Idempotency-Key": "key-0002"}),
    "gitlab_signed": Change(headers={"webhook-id": "key-0002"}),
    "paypal": Change(body={"id": "WH-MADE-UP-0002"}, headers={"PAYPAL-TRANSMISSION-ID": "tx-0003"}),
    "square": Change(body={"event_id": "ev-sq-0002"}),
    "adyen": Change(body={"type": "recurring.token.updated"}),
    "adyen_classic": Change(body={"notificationItems.0.NotificationRequestItem.success": "false"}),
    "paddle": Change(body={"event_id": "evt_0002"}),
    "braintree": Change(body={"subject.subscription.id": "sub0002"}),
    "gocardless": Change(body={"events.0.id": "EV0003"}),
    "mollie": Change(body={"id": "event_0002"}),
    "mollie_classic": NOTHING,  # word for word the same, and yet the payment may have changed again
    "plaid": NOTHING,
    "coinbase_commerce": Change(body={"event.id": "24934862-0000-4000-8000-000000000002"}),
    "coinbase_cdp": Change(body={"status": "SUCCESS"}, headers={"X-Event-Id": "cdp-0002"}),
    "razorpay": Change(body={"created_at": AT + 1}, headers={"X-Razorpay-Event-Id": "rzp-0002"}),
    "paystack": Change(body={"event": "charge.failed"}),
    "lemonsqueezy": Change(body={"data.attributes.status": "past_due"}),  # within the same second
    "chargebee": Change(body={"id": "ev_0002"}),
    "chargebee_key": Change(body={"id": "ev_0002"}),
    "recurly": Change(body={"event_time": "2025-11-13T01:30:01Z"}),  # the same object was updated again
    "sendgrid": Change(body={"0.sg_event_id": "b3Blbi0wMDAx", "0.event": "open"}),
}
"""Another event about the same object: its first item must be an event of its own."""
