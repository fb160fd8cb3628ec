"""Deliveries signed as the providers document it, with the standard library and `cryptography` alone.

Nothing here is ours or an SDK's, so an oracle that accepts such a delivery is alive, and agrees with the facts.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
from msgspec import Struct

from tests.oracles.delivery import Delivery
from tests.oracles.keys import certificate_id, private_key

URL = "https://hooks.example.com/in/endpoint"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


class Sent(Struct, frozen=True):
    """All that a scheme may sign."""

    body: bytes
    secret: str
    now: float
    url: str
    method: str
    id: str | None


Headers = dict[str, str]
Sealed = tuple[Headers, bytes]


def sign(
    name: str,
    body: bytes,
    *,
    secret: str,
    now: float,
    url: str = URL,
    method: str = "POST",
    id: str | None = None,  # noqa: A002 - the schemes' own word
) -> Headers:
    """The headers that carry the signature; `id` is the message's, where the scheme signs one."""
    return SIGNERS[name](Sent(body, secret, now, url, method, id))


def seal(
    name: str,
    body: bytes,
    *,
    secret: str,
    now: float,
    url: str = URL,
    method: str = "POST",
    id: str | None = None,  # noqa: A002
) -> Sealed:
    """For the schemes whose signature lies in the body: the headers and the whole body."""
    return ENVELOPES[name](Sent(body, secret, now, url, method, id))


def deliver(
    name: str,
    body: bytes | None = None,
    *,
    secret: str,
    now: float,
    url: str = URL,
    method: str = "POST",
    id: str | None = None,  # noqa: A002
) -> Delivery:
    """The request that the provider would send; without a body, one of the shape that its SDK expects."""
    sent = sample(name) if body is None else body
    if name in ENVELOPES:
        headers, sent = seal(name, sent, secret=secret, now=now, url=url, method=method, id=id)
    else:
        headers = sign(name, sent, secret=secret, now=now, url=url, method=method, id=id)
    return Delivery(method, url, JSON | headers, sent)


# ── schemes ──────────────────────────────────────────────────────────────────


def _hex(key: str, message: bytes, digest: str = "sha256") -> str:
    return hmac.new(key.encode(), message, digest).hexdigest()


def _b64(key: bytes, message: bytes, digest: str = "sha256") -> str:
    return b64encode(hmac.new(key, message, digest).digest()).decode()


def _whsec(secret: str) -> bytes:
    return b64decode(secret.removeprefix("whsec_"))


def _standard(prefix: str, key: Callable[[str], bytes] = _whsec) -> Callable[[Sent], Headers]:
    def headers(sent: Sent) -> Headers:
        message_id = sent.id or "msg_" + hashlib.sha256(sent.body).hexdigest()[:27]
        signature = _b64(key(sent.secret), f"{message_id}.{int(sent.now)}.".encode() + sent.body)
        return {
            f"{prefix}-id": message_id,
            f"{prefix}-timestamp": str(int(sent.now)),
            f"{prefix}-signature": f"v1,{signature}",
        }

    return headers


def _plain(header: str, value: Callable[[str, bytes], str]) -> Callable[[Sent], Headers]:
    """One header over the body alone."""
    return lambda sent: {header: value(sent.secret, sent.body)}


def _stripe(sent: Sent) -> Headers:
    stamp = int(sent.now)
    return {"Stripe-Signature": f"t={stamp},v1={_hex(sent.secret, f'{stamp}.'.encode() + sent.body)}"}


def _slack_events(sent: Sent) -> Headers:
    signature = "v0=" + _hex(sent.secret, f"v0:{int(sent.now)}:".encode() + sent.body)
    return {"X-Slack-Request-Timestamp": str(int(sent.now)), "X-Slack-Signature": signature}


def _paddle(sent: Sent) -> Headers:
    stamp = int(sent.now)
    return {"Paddle-Signature": f"ts={stamp};h1={_hex(sent.secret, f'{stamp}:'.encode() + sent.body)}"}


def _workos(sent: Sent) -> Headers:
    stamp = int(sent.now * 1000)
    return {"WorkOS-Signature": f"t={stamp}, v1={_hex(sent.secret, f'{stamp}.'.encode() + sent.body)}"}


def twilio_json_url(url: str, body: bytes) -> str:
    """Where Twilio posts JSON to: the signature covers the URL only, and the URL names the body's digest."""
    return f"{url}{'&' if urlsplit(url).query else '?'}bodySHA256={hashlib.sha256(body).hexdigest()}"


def _twilio(sent: Sent) -> Headers:
    if "bodySHA256" in parse_qs(urlsplit(sent.url).query):
        return JSON | {"X-Twilio-Signature": _b64(sent.secret.encode(), sent.url.encode(), "sha1")}
    fields = sorted(set(parse_qsl(sent.body.decode(), keep_blank_values=True)))
    message = sent.url + "".join(name + value for name, value in fields)
    return FORM | {"X-Twilio-Signature": _b64(sent.secret.encode(), message.encode(), "sha1")}


def _square(sent: Sent) -> Headers:
    return {"x-square-hmacsha256-signature": _b64(sent.secret.encode(), sent.url.encode() + sent.body)}


def _hubspot(sent: Sent) -> Headers:
    stamp = str(int(sent.now * 1000))
    signature = _b64(sent.secret.encode(), f"{sent.method}{sent.url}".encode() + sent.body + stamp.encode())
    return {"X-HubSpot-Signature-v3": signature, "X-HubSpot-Request-Timestamp": stamp}


def _hubspot_v1(sent: Sent) -> Headers:
    digest = hashlib.sha256(sent.secret.encode() + sent.body).hexdigest()
    return {"X-HubSpot-Signature": digest, "X-HubSpot-Signature-Version": "v1"}


def _hubspot_v2(sent: Sent) -> Headers:
    digest = hashlib.sha256(f"{sent.secret}{sent.method}{sent.url}".encode() + sent.body).hexdigest()
    return {"X-HubSpot-Signature": digest, "X-HubSpot-Signature-Version": "v2"}


def _discord_interactions(sent: Sent) -> Headers:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(sent.secret))
    stamp = str(int(sent.now))
    return {"X-Signature-Ed25519": key.sign(stamp.encode() + sent.body).hex(), "X-Signature-Timestamp": stamp}


def _sendgrid(sent: Sent) -> Headers:
    stamp = str(int(sent.now))
    signature = private_key(sent.secret).sign(stamp.encode() + sent.body, ec.ECDSA(hashes.SHA256()))
    prefix = "X-Twilio-Email-Event-Webhook"
    return {f"{prefix}-Signature": b64encode(signature).decode(), f"{prefix}-Timestamp": stamp}


def pubsub_token(secret: str, claims: dict[str, object], kid: str) -> str:
    """A JWT as Google signs it; the tests alter claims through it."""

    def part(value: object) -> bytes:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    message = part({"alg": "RS256", "kid": kid, "typ": "JWT"}) + b"." + part(claims)
    signature = private_key(secret).sign(message, padding.PKCS1v15(), hashes.SHA256())
    return (message + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def pubsub_claims(now: float, url: str) -> dict[str, object]:
    return {
        "iss": "https://accounts.google.com",
        "aud": url,
        "azp": "110000000000000000001",
        "sub": "110000000000000000001",
        "email": "push@example-project.iam.gserviceaccount.com",
        "email_verified": True,
        "iat": int(now),
        "exp": int(now) + 3600,
    }


def _google_pubsub(sent: Sent) -> Headers:
    token = pubsub_token(sent.secret, pubsub_claims(sent.now, sent.url), certificate_id(sent.secret))
    return {"Authorization": f"Bearer {token}"}


# ── signatures in the body ───────────────────────────────────────────────────


def _braintree(sent: Sent) -> Sealed:
    """`body` is the notification's XML; the secret is PUBLIC:PRIVATE."""
    public, _, private = sent.secret.partition(":")
    payload = encodebytes(sent.body)
    signature = hmac.new(hashlib.sha1(private.encode()).digest(), payload, "sha1").hexdigest()
    return FORM, urlencode({"bt_signature": f"{public}|{signature}", "bt_payload": payload}).encode()


def _mailgun(sent: Sent) -> Sealed:
    """`body` is the event's JSON; `id` is the token."""
    token = sent.id or hashlib.sha512(sent.body).hexdigest()[:50]
    stamp = str(int(sent.now))
    signature = {"token": token, "timestamp": stamp, "signature": _hex(sent.secret, f"{stamp}{token}".encode())}
    return {}, json.dumps({"signature": signature, "event-data": json.loads(sent.body)}).encode()


def adyen_classic_text(item: dict[str, Any]) -> str:
    """The eight fields that Adyen signs, joined as it joins them."""
    amount = item["amount"]
    names = ("pspReference", "originalReference", "merchantAccountCode", "merchantReference")
    first = [str(item.get(name, "")) for name in names]
    return ":".join([*first, str(amount["value"]), amount["currency"], item["eventCode"], str(item["success"])])


def _adyen_classic(sent: Sent) -> Sealed:
    """`body` is one NotificationRequestItem's JSON."""
    item = json.loads(sent.body)
    signature = _b64(bytes.fromhex(sent.secret), adyen_classic_text(item).encode())
    item["additionalData"] = item.get("additionalData", {}) | {"hmacSignature": signature}
    return {}, json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}).encode()


SIGNERS: dict[str, Callable[[Sent], Headers]] = {
    "stripe": _stripe,
    "svix": _standard("svix"),
    "clerk": _standard("svix"),
    "resend": _standard("svix"),
    "standard_webhooks": _standard("webhook"),
    "openai": _standard("webhook"),
    "anthropic": _standard("webhook"),
    "gitlab_signed": _standard("webhook"),
    "bigcommerce": _standard("webhook", str.encode),
    "github": _plain("X-Hub-Signature-256", lambda secret, body: "sha256=" + _hex(secret, body)),
    "meta": _plain("X-Hub-Signature-256", lambda secret, body: "sha256=" + _hex(secret, body)),
    "slack_events": _slack_events,
    "twilio": _twilio,
    "paddle": _paddle,
    "square": _square,
    "adyen": _plain("HmacSignature", lambda secret, body: _b64(bytes.fromhex(secret), body)),
    "hubspot": _hubspot,
    "hubspot_v1": _hubspot_v1,
    "hubspot_v2": _hubspot_v2,
    "line": _plain("x-line-signature", lambda secret, body: _b64(secret.encode(), body)),
    "razorpay": _plain("X-Razorpay-Signature", _hex),
    "gocardless": _plain("Webhook-Signature", _hex),
    "coinbase_commerce": _plain("X-CC-Webhook-Signature", _hex),
    "workos": _workos,
    "discord_interactions": _discord_interactions,
    "sendgrid": _sendgrid,
    "google_pubsub": _google_pubsub,
    "quickbooks": _plain("intuit-signature", lambda secret, body: _b64(secret.encode(), body)),
}
ENVELOPES: dict[str, Callable[[Sent], Sealed]] = {
    "braintree": _braintree,
    "mailgun": _mailgun,
    "adyen_classic": _adyen_classic,
}


# ── bodies ───────────────────────────────────────────────────────────────────

_NOTIFICATION = b"""<?xml version="1.0" encoding="UTF-8"?>
<notification>
  <kind>check</kind>
  <timestamp type="datetime">2025-06-15T00:00:00Z</timestamp>
  <subject><check type="boolean">true</check></subject>
</notification>
"""
_ITEM = {
    "pspReference": "881500000004200A",
    "merchantAccountCode": "ExampleShop",
    "merchantReference": "order-4200",
    "amount": {"value": 4200, "currency": "EUR"},
    "eventCode": "AUTHORISATION",
    "success": "true",
    "reason": "made up",
}
_SAMPLES: dict[str, bytes] = {
    "braintree": _NOTIFICATION,
    "adyen_classic": json.dumps(_ITEM).encode(),
    "twilio": b"CallSid=CA4200&From=%2B15550004200&Body=caf%C3%A9+%26+more&Empty=",
    "sendgrid": b'[{"event":"delivered","sg_event_id":"made-up-4200"}]\r\n',
    "gocardless": b'{"events":[{"id":"EV4200","action":"paid_out","resource_type":"payments"}]}',
}


def sample(name: str) -> bytes:
    """A body of the shape that the SDK expects; it has `4200` in it, for a test to tamper with."""
    return _SAMPLES.get(name, '{"id":"evt_made_up","type":"invoice.paid","amount":4200,"name":"Zoë"}'.encode())
