"""The rank of a type: with the same version, `created` is older than `updated`, and that older than `deleted`."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from hookledger.errors import ConfigError
from hookledger.ledger import FIRST, LAST, MIDDLE
from hookledger.providers.catalogue import contracts, find
from hookledger.providers.generic import contract as generic
from hookledger.providers.load import parse

LIVES: dict[str, tuple[str | None, ...]] = {
    # a type with which an object begins, one in between, and one with which it ends
    "adyen": ("recurring.token.created", "recurring.token.updated", None),
    "adyen_classic": ("AUTHORISATION", "CAPTURE", None),
    "auth0_events": ("user.created", "user.updated", "user.deleted"),
    "azure_event_grid": ("Storage.BlobCreated", "Storage.BlobRenamed", "Storage.BlobDeleted"),
    "bigcommerce": ("store/order/created", "store/order/statusUpdated", "store/product/deleted"),
    "bitbucket": ("pullrequest:created", "pullrequest:changes_request_created", "pullrequest:fulfilled"),
    "braintree": ("dispute_opened", "subscription_charged_successfully", "subscription_canceled"),
    "calendly": ("invitee.created", "routing_form_submission.updated", "invitee.canceled"),
    "chargebee": ("subscription_created", "subscription_cancelled", "subscription_deleted"),
    "clerk": ("user.created", "user.updated", "user.deleted"),
    "coinbase_cdp": ("onramp.transaction.created", "onramp.transaction.updated", "onramp.transaction.success"),
    "coinbase_commerce": ("charge:created", "charge:confirmed", None),
    "discord_events": ("ENTITLEMENT_CREATE", "ENTITLEMENT_UPDATE", "ENTITLEMENT_DELETE"),
    "docusign": ("envelope-created", "envelope-sent", "envelope-completed"),
    "github": ("issues.opened", "issues.closed", "issues.deleted"),
    "gitlab": ("Merge Request Hook.open", "Merge Request Hook.update", "Merge Request Hook.merge"),
    "gocardless": ("payments.created", "mandates.cancelled", None),
    "google_pubsub": ("message.OBJECT_FINALIZE", "message.OBJECT_METADATA_UPDATE", "message.OBJECT_DELETE"),
    "hubspot": ("contact.creation", "contact.propertyChange", "contact.deletion"),
    "intercom": ("contact.user.created", "contact.user.updated", "contact.deleted"),
    "jira": ("jira:issue_created", "jira:issue_updated", "jira:issue_deleted"),
    "lemonsqueezy": ("subscription_created", "subscription_cancelled", "subscription_expired"),
    "linear": ("Issue.create", "Issue.update", "Issue.remove"),
    "mailgun": ("accepted", "delivered", None),
    "meta_whatsapp": ("messages.sent", "messages.delivered", "messages.read"),
    "mollie": ("sales-invoice.created", "payment-link.paid", None),
    "okta": ("user.lifecycle.create", "user.session.start", "user.lifecycle.delete.initiated"),
    "paddle": ("subscription.created", "subscription.updated", "subscription.canceled"),
    "paypal": ("BILLING.SUBSCRIPTION.CREATED", "BILLING.SUBSCRIPTION.ACTIVATED", "BILLING.SUBSCRIPTION.CANCELLED"),
    "paystack": ("subscription.create", "charge.success", None),
    "quickbooks": ("Invoice.Create", "Invoice.Update", "Invoice.Delete"),
    "quickbooks_cloudevents": ("qbo.invoice.created.v1", "qbo.invoice.updated.v1", "qbo.invoice.deleted.v1"),
    "razorpay": ("payment.authorized", "payment.captured", "subscription.cancelled"),
    "recurly": ("subscription.created", "charge_invoice.paid", "subscription.expired"),
    "resend": ("email.sent", "email.delivered", "contact.deleted"),
    "sendgrid": ("processed", "delivered", None),
    "sentry": ("issue.created", "issue.resolved", "installation.deleted"),
    "shopify": ("orders/create", "orders/updated", "orders/delete"),
    "square": ("payment.created", "payment.updated", "customer.deleted"),
    "standard_webhooks": ("user.created", "invoice.paid", "user.deleted"),
    "stripe": ("customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted"),
    "svix": ("user.created", "invoice.paid", "user.deleted"),
    "telegram": ("message", "edited_message", "deleted_business_messages"),
    "twilio": ("MessageStatus.queued", "MessageStatus.delivered", "CallStatus.completed"),
    "twilio_json": tuple(f"com.twilio.messaging.message.{status}" for status in ("queued", "sent", "read")),
    "vercel": ("deployment.created", "deployment.succeeded", "deployment.error"),
    "woocommerce": ("order.created", "order.updated", "order.deleted"),
    "workos": ("user.created", "dsync.user.updated", "user.deleted"),
    "xero": ("INVOICE.CREATE", "INVOICE.UPDATE", None),
    "zendesk": ("zen:event-type:ticket.created", "zen:event-type:ticket.changed", "zen:event-type:user.deleted"),
    "zoom": ("meeting.created", "meeting.started", "meeting.deleted"),
}  # fmt: skip
SAME = {"azure_event_grid_cloudevents", "chargebee_key", "gitlab_signed", "hubspot_v1", "hubspot_v2", "jira_app"}
SAME |= {"standard_webhooks_v1a"}
"""Contracts of the same types as another."""


@pytest.mark.parametrize("name", LIVES)
def test_an_objects_life(name: str) -> None:
    begins, changes, ends = LIVES[name]
    contract = contracts()[name]
    assert begins is not None
    assert changes is not None
    assert (contract.rank(begins), contract.rank(changes)) == (FIRST, MIDDLE)
    assert ends is None or contract.rank(ends) == LAST


def test_every_contract_with_ranks_is_shown() -> None:
    ranked = {name for name, contract in contracts().items() if contract.first_types or contract.last_types}
    assert ranked == {*LIVES} | SAME


@pytest.mark.parametrize("name", sorted(contracts()))
def test_no_sample_is_first_and_last(name: str) -> None:
    contract, folder = contracts()[name], files("hookledger.providers.samples").joinpath(name)
    types = [json.loads(file.read_text())["type"] for file in folder.iterdir()] if folder.is_dir() else []
    first, last = contract._ranked
    assert not [kind for kind in types if first.fullmatch(kind) and last.fullmatch(kind)]
    assert {contract.rank("unknown"), contract.rank(""), contract.rank("x" * 255)} == {MIDDLE}


@pytest.mark.parametrize("name", ["bitbucket", "coinbase_cdp", "shopify", "woocommerce"])
def test_every_pattern_is_of_a_documented_type(name: str) -> None:
    contract = find(name)
    for pattern in (*contract.first_types, *contract.last_types):
        one = parse("made", f'title = "Made"\nfirst_types = ["{pattern}"]\n[scheme]\nkind = "hmac"\nheader = "X"\n')
        assert any(one["made"].rank(kind) == FIRST for kind in contract.types), pattern


def test_a_pattern_means_nothing_but_its_star() -> None:
    made = generic({"header": "X", "first_types": ["a.b", "x(*)[", "*"], "last_types": ["a.b.*"]})
    assert [made.rank(kind) for kind in ("a.b", "a.b.c", "axb", "x(y)[")] == [FIRST, LAST, FIRST, FIRST]
    without_star = generic({"header": "X", "first_types": ["a.b"]})
    assert [without_star.rank(kind) for kind in ("a.b", "axb", "a.b.c", "A.B")] == [FIRST, MIDDLE, MIDDLE, MIDDLE]


def test_a_mistake_in_a_file_is_named() -> None:
    with pytest.raises(ConfigError, match="first_types"):
        parse("made", 'title = "Made"\nfirst_types = "*.created"\n[scheme]\nkind = "hmac"\nheader = "X"\n')
