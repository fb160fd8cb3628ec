"""Every contract that no SDK judges, signed from the facts by hand: with the standard library, and none of our code.

Signing and verifying read the same data, so a contract that is wrong agrees with itself; here it has somebody else to
agree with.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hookledger.providers.catalogue import contracts
from tests.oracles import ours
from tests.oracles.delivery import Delivery
from tests.oracles.sdks import ORACLES
from tests.oracles.vectors import VECTORS

NOW = 1_763_000_000.0
SECRET = "a secret that was made up for these tests"
URL = "https://hooks.example.com/in/facts"
BODY = '{"id":"evt_1","type":"a.b","amount":4200,"name":"Zoë","webhookTimestamp":1763000000000}'.encode()

Headers = dict[str, str]
Signer = Callable[[bytes], Headers]


def _hex(message: bytes, alg: str = "sha256") -> str:
    return hmac.new(SECRET.encode(), message, alg).hexdigest()


def _b64(message: bytes, alg: str = "sha256") -> str:
    return b64encode(hmac.new(SECRET.encode(), message, alg).digest()).decode()


def _basic() -> Headers:
    return {"Authorization": "Basic " + b64encode(b"user:" + SECRET.encode()).decode()}


ISO = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
TS = b"1763000000"

SIGNERS: dict[str, Signer] = {
    "shopify": lambda body: {"X-Shopify-Hmac-Sha256": _b64(body)},
    "zoom": lambda body: {
        "x-zm-signature": "v0=" + _hex(b"v0:" + TS + b":" + body),
        "x-zm-request-timestamp": TS.decode(),
    },
    "intercom": lambda body: {"X-Hub-Signature": "sha1=" + _hex(body, "sha1")},
    "zendesk": lambda body: {
        "X-Zendesk-Webhook-Signature": _b64(ISO.encode() + body),
        "X-Zendesk-Webhook-Signature-Timestamp": ISO,
    },
    "linear": lambda body: {"Linear-Signature": _hex(body)},
    "bitbucket": lambda body: {"X-Hub-Signature": "sha256=" + _hex(body)},
    "sentry": lambda body: {"Sentry-Hook-Signature": _hex(body)},
    "vercel": lambda body: {"x-vercel-signature": _hex(body, "sha1")},
    "typeform": lambda body: {"Typeform-Signature": "sha256=" + _b64(body)},
    "calendly": lambda body: {"Calendly-Webhook-Signature": f"t=1763000000,v1={_hex(TS + b'.' + body)}"},
    "docusign": lambda body: {"X-DocuSign-Signature-1": _b64(body)},
    "xero": lambda body: {"x-xero-signature": _b64(body)},
    "paystack": lambda body: {"x-paystack-signature": _hex(body, "sha512")},
    "lemonsqueezy": lambda body: {"X-Signature": _hex(body)},
    "woocommerce": lambda body: {"X-WC-Webhook-Signature": _b64(body)},
    "mollie": lambda body: {"X-Mollie-Signature": "sha256=" + _hex(body)},
    "quickbooks_cloudevents": lambda body: {"intuit-signature": _b64(body)},
    "meta_whatsapp": lambda body: {"X-Hub-Signature-256": "sha256=" + _hex(body)},
    "meta_messenger": lambda body: {"X-Hub-Signature-256": "sha256=" + _hex(body)},
    "slack_commands": lambda body: {
        "X-Slack-Signature": "v0=" + _hex(b"v0:" + TS + b":" + body),
        "X-Slack-Request-Timestamp": TS.decode(),
    },
    "telegram": lambda _: {"X-Telegram-Bot-Api-Secret-Token": SECRET},
    "gitlab": lambda _: {"X-Gitlab-Token": SECRET},
    "okta": lambda _: {"Authorization": SECRET},
    "auth0_logs": lambda _: {"Authorization": SECRET},
    "auth0_events": lambda _: {"Authorization": f"Bearer {SECRET}"},
    "cloudevents": lambda _: {"Authorization": f"Bearer {SECRET}"},
    "cloudevents_binary": lambda _: {"Authorization": f"Bearer {SECRET}"},
    "chargebee": lambda _: _basic(),
    "postmark": lambda _: _basic(),
    "postmark_inbound": lambda _: _basic(),
}
SIGNERS["slack_interactions"] = SIGNERS["slack_commands"]
SIGNERS["zendesk_triggers"] = SIGNERS["zendesk"]

ELSEWHERE = {
    "aws_sns": "tests/path/test_published_keys.py signs by hand",
    "azure_event_grid": "?code= in the URL: tests/path/test_handshakes.py",
    "azure_event_grid_cloudevents": "the same",
    "azure_event_grid_entra": "tests/unit/test_tokens.py signs with PyJWT",
    "chargebee_key": "?key= in the URL: tests/unit/test_tokens_presented.py",
    "discord_events": "the scheme of discord_interactions, which has an oracle",
    "jira_app": "tests/unit/test_tokens.py signs with PyJWT",
    "mollie_classic": "proves nothing",
    "paypal": "tests/unit/test_certificates.py signs by hand",
    "plaid": "tests/unit/test_tokens.py signs with PyJWT",
    "twilio_json": "has published vectors, under twilio",
    "twilio_voice": "the scheme of twilio, which has an oracle",
}


def secret_of(name: str) -> str:
    return f"user:{SECRET}" if name in ("chargebee", "postmark", "postmark_inbound") else SECRET


@pytest.mark.parametrize("name", sorted(SIGNERS))
def test_what_was_signed_by_hand_is_accepted(name: str) -> None:
    where = ours.endpoint(name, [secret_of(name)], URL)
    delivery = Delivery("POST", URL, SIGNERS[name](BODY), BODY)
    assert ours.refusal(where, delivery, NOW) is None
    if where.contract.body_authenticated:
        other = Delivery("POST", URL, delivery.headers, BODY.replace(b"4200", b"4300"))
        assert ours.refusal(where, other, NOW) == "signature_mismatch"


@pytest.mark.parametrize("name", sorted(SIGNERS))
def test_each_header_is_needed(name: str) -> None:
    where = ours.endpoint(name, [secret_of(name)], URL)
    headers = SIGNERS[name](BODY)
    for missing in headers:
        rest = {field: value for field, value in headers.items() if field != missing}
        reason = ours.refusal(where, Delivery("POST", URL, rest, BODY), NOW)
        assert reason is not None
        assert reason.endswith("_missing")


def test_every_contract_has_an_oracle() -> None:
    published = {vector.provider for vector in VECTORS}
    assert set(contracts()) - set(ORACLES) - published - set(SIGNERS) == set(ELSEWHERE)
