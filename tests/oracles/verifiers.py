"""One function per SDK: its verifier, called with all it offers switched on.

Each calls no more than the verifier where the SDK separates it from parsing; a refusal is a false result or an
exception. Where an SDK takes a header's value rather than the headers, an absent header is the empty text.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate

from tests.oracles.delivery import Delivery, NotOffered
from tests.oracles.oracle import sdk

# ── Standard Webhooks and its kin ────────────────────────────────────────────


def standard_webhooks(request: Delivery, secret: str) -> bool:
    sdk("standardwebhooks.webhooks", "standardwebhooks").Webhook(secret).verify(
        request.body, request.headers, json_parse=False
    )
    return True


def bigcommerce(request: Delivery, secret: str) -> bool:
    # BigCommerce's key is the client secret's text; its docs encode it only because the library decodes.
    return standard_webhooks(request, base64.b64encode(secret.encode()).decode())


def svix(request: Delivery, secret: str) -> bool:
    sdk("svix.webhooks", "svix").Webhook(secret).verify(request.body, request.headers)
    return True


def resend(request: Delivery, secret: str) -> bool:
    names = ("id", "timestamp", "signature")
    headers = {name: request.header(f"svix-{name}") for name in names}
    options = {"payload": request.text(), "headers": headers, "webhook_secret": secret}
    sdk("resend", "resend").Webhooks.verify(options)
    return True


@cache
def _openai_client() -> Any:
    return sdk("openai", "openai").OpenAI(api_key="unused")


def openai(request: Delivery, secret: str) -> bool:
    _openai_client().webhooks.verify_signature(request.body, request.headers, secret=secret)
    return True


@cache
def _anthropic_client() -> Any:
    return sdk("anthropic", "anthropic").Anthropic(api_key="unused")


def anthropic(request: Delivery, secret: str) -> bool:
    _anthropic_client().beta.webhooks.unwrap(request.text(), headers=request.headers, key=secret)
    return True


# ── signatures in a header ───────────────────────────────────────────────────


def stripe(request: Delivery, secret: str) -> object:
    stripe = sdk("stripe", "stripe")
    return stripe.WebhookSignature.verify_header(
        request.body, request.header("Stripe-Signature"), secret, stripe.Webhook.DEFAULT_TOLERANCE
    )


def github(request: Delivery, secret: str) -> bool:
    # The order in which gidgethub's own from_http() looks for the header.
    signature = request.header("X-Hub-Signature-256") or request.header("X-Hub-Signature")
    sdk("gidgethub.sansio", "gidgethub").validate_event(request.body, signature=signature, secret=secret)
    return True


def slack(request: Delivery, secret: str) -> object:
    verifier = sdk("slack_sdk.signature", "slack_sdk").SignatureVerifier(secret)
    return verifier.is_valid_request(request.body, request.headers)


class _Form(dict[str, list[str]]):
    """A form as Django hands it to Twilio's validator: repeated fields keep all their values."""

    def getlist(self, name: str) -> list[str]:
        return self[name]


def twilio(request: Delivery, secret: str) -> object:
    twilio = sdk("twilio.request_validator", "twilio")
    form = request.header("Content-Type").startswith("application/x-www-form-urlencoded")
    return twilio.RequestValidator(secret).validate(
        request.url,
        _Form(request.form()) if form else request.text(),
        request.header(twilio.SIGNATURE_HEADER),
        twilio.get_signature_algorithm(request.header(twilio.SIGNATURE_SETTINGS_HEADER)),
    )


def paddle(request: Delivery, secret: str) -> object:
    paddle = sdk("paddle_billing.Notifications", "paddle-python-sdk")
    seen = SimpleNamespace(body=request.body, headers={"Paddle-Signature": request.header("Paddle-Signature")})
    with mock.patch.dict(os.environ):
        os.environ.pop("TEST_MODE", None)  # set to 1, it switches the SDK's clock off
        return paddle.Verifier().verify(seen, paddle.Secret(secret))


def square(request: Delivery, secret: str) -> object:
    return sdk("square.utils.webhooks_helper", "squareup").verify_signature(
        request_body=request.text(),
        signature_header=request.header("x-square-hmacsha256-signature"),
        signature_key=secret,
        notification_url=request.url,
    )


def adyen(request: Delivery, secret: str) -> object:
    util = sdk("Adyen.util", "Adyen")
    return util.is_valid_hmac_payload(request.header("HmacSignature"), secret, request.body)


def hubspot(version: str) -> Callable[[Delivery, str], object]:
    header = "X-HubSpot-Signature-v3" if version == "v3" else "X-HubSpot-Signature"

    def verify(request: Delivery, secret: str) -> object:
        return sdk("hubspot.utils.signature", "hubspot-api-client").Signature.is_valid(
            signature=request.header(header),
            client_secret=secret,
            request_body=request.text(),
            http_uri=request.url,
            http_method=request.method,
            signature_version=version,
            timestamp=request.header("X-HubSpot-Request-Timestamp") or None,
        )

    return verify


def line(request: Delivery, secret: str) -> object:
    validator = sdk("linebot.v3.webhook", "line-bot-sdk").SignatureValidator(secret)
    return validator.validate(request.text(), request.header("x-line-signature"))


def razorpay(request: Delivery, secret: str) -> object:
    utility = sdk("razorpay", "razorpay").Client(auth=("unused", "unused")).utility
    return utility.verify_webhook_signature(request.text(), request.header("X-Razorpay-Signature"), secret)


def gocardless(request: Delivery, secret: str) -> bool:
    webhooks = sdk("gocardless_pro.webhooks", "gocardless_pro")
    webhooks.parse(request.body, secret, request.header("Webhook-Signature"))
    return True


def coinbase_commerce(request: Delivery, secret: str) -> object:
    signature = sdk("coinbase_commerce.webhook", "coinbase-commerce").WebhookSignature
    return signature.verify_sig_header(request.text(), request.header("X-CC-Webhook-Signature"), secret)


@cache
def _workos_client() -> Any:
    return sdk("workos", "workos").WorkOSClient(api_key="unused", client_id="unused")


def workos(request: Delivery, secret: str) -> bool:
    _workos_client().webhooks.verify_header(
        event_body=request.body, event_signature=request.header("WorkOS-Signature"), secret=secret
    )
    return True


def meta(request: Delivery, secret: str) -> object:
    utils = sdk("pywa.utils", "pywa")
    return utils.webhook_updates_validator(secret, request.body, request.header("X-Hub-Signature-256"))


def quickbooks(request: Delivery, secret: str) -> object:
    client = sdk("quickbooks", "python-quickbooks").QuickBooks()
    return client.validate_webhook_signature(request.text(), request.header("intuit-signature"), secret)


# ── signatures in the body ───────────────────────────────────────────────────


def braintree(request: Delivery, secret: str) -> bool:
    braintree = sdk("braintree", "braintree")
    public, _, private = secret.partition(":")
    configuration = braintree.Configuration(braintree.Environment.Sandbox, "unused", public, private)
    form = request.form()
    signature, payload = (form.get(name, [None])[0] for name in ("bt_signature", "bt_payload"))
    braintree.BraintreeGateway(configuration).webhook_notification.parse(signature, payload)
    return True


def adyen_classic(request: Delivery, secret: str) -> object:
    return sdk("Adyen.util", "Adyen").is_valid_hmac_notification(request.json(), secret)


def mailgun(request: Delivery, secret: str) -> object:
    try:
        signature = request.json()["signature"]
        token, timestamp, digest = (signature[name] for name in ("token", "timestamp", "signature"))
    except (KeyError, TypeError, IndexError) as error:
        raise NotOffered("the body has no signature") from error
    return sdk("mailgun.security", "mailgun").SecurityGuard.verify_webhook(
        signing_key=secret, token=token, timestamp=timestamp, signature=digest
    )


# ── public keys ──────────────────────────────────────────────────────────────


def discord(request: Delivery, secret: str) -> object:
    interactions = sdk("discord_interactions", "discord-interactions")
    with redirect_stdout(io.StringIO()):  # it prints why it refuses
        return interactions.verify_key(
            request.body, request.header("X-Signature-Ed25519"), request.header("X-Signature-Timestamp"), secret
        )


def sendgrid(request: Delivery, secret: str) -> object:
    prefix = "X-Twilio-Email-Event-Webhook"
    return (
        sdk("sendgrid.helpers.eventwebhook", "sendgrid")
        .EventWebhook(secret)
        .verify_signature(
            request.text(), request.header(f"{prefix}-Signature"), request.header(f"{prefix}-Timestamp")
        )
    )


def key_id(certificate: str) -> str:
    """The name under which a certificate stands in the list that Google publishes."""
    return hashlib.sha1(load_pem_x509_certificate(certificate.encode()).public_bytes(Encoding.DER)).hexdigest()


def google_pubsub(request: Delivery, secret: str) -> bool:
    scheme, _, token = request.header("Authorization").partition(" ")
    if scheme.lower() != "bearer":
        return False
    published = SimpleNamespace(status=200, data=json.dumps({key_id(secret): secret}).encode())
    sdk("google.oauth2.id_token", "google-auth").verify_oauth2_token(
        token, lambda _url, method: published, audience=request.url
    )
    return True
