"""Providers that sign with keys of their own, played with keys made here."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import jwt
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Struct

from hookledger.errors import Malformed, Rejected, Unauthentic
from hookledger.model import Request
from hookledger.providers.catalogue import find
from hookledger.providers.schemes.base import KeyNeeded, Keyring, NoKeys, Scheme, Where
from hookledger.providers.schemes.certificate import Certificate
from hookledger.providers.schemes.jwt import Claim, Jwt
from hookledger.providers.schemes.public_key import PublicKey
from hookledger.providers.schemes.times import Timestamp

NOW = 1_700_000_000.0
MOMENT = datetime.fromtimestamp(NOW, UTC)
BODY = b'{"id": "evt_1", "type": "invoice.paid", "amount": 100}'
Pairs = list[tuple[bytes, bytes]]

TENANT = "8d3cf2c6-2d0e-4c5f-9a0c-3c1c4b1f7d11"
GOOGLE = "https://www.googleapis.com/oauth2/v3/certs"
ENTRA = f"https://login.microsoftonline.com/{TENANT}/discovery/v2.0/keys"
PLAID = "https://production.plaid.com/webhook_verification_key/get"
SNS_CERT = f"https://sns.us-east-1.amazonaws.com/SimpleNotificationService-{'0a' * 16}.pem"
PAYPAL_CERT = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-1d93a270"
TOPIC = "arn:aws:sns:us-east-1:123456789012:orders"
WEBHOOK_ID = "1JE4291016473214C"
AUDIENCE = "https://hooks.example.com/pubsub"
APPLICATION = "b0a5c1d2-0000-4000-8000-000000000001"

DISCORD = PublicKey(
    header=b"x-signature-ed25519",
    alg="ed25519",
    message="{ts}{body}",
    encoding="hex",
    timestamp=Timestamp(header=b"x-signature-timestamp"),
    key="hex",
)
SENDGRID = PublicKey(
    header=b"x-twilio-email-event-webhook-signature",
    alg="ecdsa-p256-sha256",
    message="{ts}{body}",
    timestamp=Timestamp(header=b"x-twilio-email-event-webhook-timestamp", tolerance=86400.0),
    key="spki",
)
STANDARD = PublicKey(
    header=b"webhook-signature",
    alg="ed25519",
    message="{id}.{ts}.{body}",
    prefix=b"v1a,",
    separator=b" ",
    timestamp=Timestamp(header=b"webhook-timestamp"),
    id_header=b"webhook-id",
    key_prefix="whpk_",
)
PAYPAL = Certificate(
    kind="paypal",
    host=r"api\.paypal\.com",
    path=r"/v1/notifications/certs/[A-Za-z0-9_-]+",
    subject=r"messageverificationcerts\.paypal\.com",
    tolerance=259200.0,
)
_SNS = find("aws_sns").scheme
assert isinstance(_SNS, Certificate)
SNS = msgspec.structs.replace(_SNS, tolerance=3600.0)
PUBSUB = Jwt(
    jwks=GOOGLE,
    issuers=("https://accounts.google.com", "accounts.google.com"),
    email="push@project.iam.gserviceaccount.com",
    tolerance=3600.0,
)
EVENT_GRID = Jwt(
    jwks=ENTRA,
    issuers=(f"https://login.microsoftonline.com/{TENANT}/v2.0", f"https://sts.windows.net/{TENANT}/"),
    claims=(Claim(("azp", "appid"), "4962773b-9cdb-44cf-a8bf-237846a00ab7"),),
    tolerance=86400.0,
)
PLAID_SCHEME = Jwt(
    header=b"plaid-verification",
    prefix=b"",
    alg="ES256",
    ask=PLAID,
    client_id="client-1",
    body_claim="request_body_sha256",
    expires=False,
)
JIRA = Jwt(alg="HS256", tolerance=300.0)


class Ring:
    """Keys as if they had been fetched; it counts who asks."""

    def __init__(self, kept: dict[str, bytes]) -> None:
        self.kept = kept
        self.asked: list[Where] = []

    def proved(self, where: Where) -> None:
        pass

    def get(self, where: Where) -> bytes:
        self.asked.append(where)
        if where.url not in self.kept:
            raise KeyNeeded(where)
        return self.kept[where.url]


class Case(Struct, frozen=True):
    """One provider, and a request that it signed."""

    scheme: Scheme
    secret: str
    request: Request
    published: dict[str, bytes]
    covered: bool = True
    """Whether the proof covers the body."""

    @property
    def key(self) -> bytes:
        return self.scheme.prepare(self.secret)

    def ring(self) -> Ring:
        return Ring(self.published)


def judge(scheme: Scheme, key: bytes, request: Request, keyring: Keyring | None = None) -> float | None:
    """The signed time, as `receive.verify` finds it; else Malformed or Unauthentic."""
    presented = scheme.read(request, b"https://hooks.example.com/x", keyring or NoKeys())
    if not scheme.matches(key, presented):
        raise Unauthentic("signature_mismatch") if scheme.plausible(presented) else Malformed("signature_malformed")
    return scheme.signed_at(presented, request)


def request(body: bytes, headers: Pairs) -> Request:
    return Request("POST", "/x", b"", tuple(headers), body)


# ── keys ──


@cache
def rsa_key(which: str = "provider") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(which: str = "provider") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key(which: str = "provider") -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def raw(key: ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def spki(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, form: Encoding = Encoding.DER) -> bytes:
    return key.public_key().public_bytes(form, PublicFormat.SubjectPublicKeyInfo)


def certificate(
    name: str,
    key: Any = None,
    *,
    days: tuple[int, int] = (-30, 30),
    issuer: str = "Test CA",
    signer: Any = None,
) -> bytes:
    """By a CA that nobody asks about: trust comes from where it is fetched."""
    key = key or rsa_key()
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(1000)
        .not_valid_before(MOMENT + timedelta(days=days[0]))
        .not_valid_after(MOMENT + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer or rsa_key("ca"), hashes.SHA256())
    )
    return built.public_bytes(Encoding.PEM)


def jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    )
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig", **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


# ── deliveries, signed without our package ──


def discord(body: bytes = BODY, key: ed25519.Ed25519PrivateKey | None = None) -> Request:
    moment = b"%d" % NOW
    made = (key or ed_key()).sign(moment + body).hex().encode()
    return request(body, [(b"x-signature-ed25519", made), (b"x-signature-timestamp", moment)])


def sendgrid(body: bytes = BODY + b"\r\n", key: ec.EllipticCurvePrivateKey | None = None) -> Request:
    moment = b"%d" % NOW
    made = base64.b64encode((key or ec_key()).sign(moment + body, ec.ECDSA(hashes.SHA256())))
    headers = [SENDGRID.header, b"x-twilio-email-event-webhook-timestamp"]
    return request(body, list(zip(headers, [made, moment], strict=True)))


def standard(body: bytes = BODY) -> Request:
    moment = b"%d" % NOW
    made = base64.b64encode(ed_key().sign(b"msg_1." + moment + b"." + body))
    value = b"v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= v1a," + made
    return request(body, [(b"webhook-signature", value), (b"webhook-timestamp", moment), (b"webhook-id", b"msg_1")])


def paypal(**changed: str) -> Request:
    moment = "2023-11-14T22:13:20Z"
    message = f"tx-1|{moment}|{WEBHOOK_ID}|{zlib.crc32(BODY)}".encode()
    made = base64.b64encode(rsa_key().sign(message, padding.PKCS1v15(), hashes.SHA256())).decode()
    headers = {
        "paypal-transmission-id": "tx-1",
        "paypal-transmission-time": moment,
        "paypal-transmission-sig": made,
        "paypal-cert-url": PAYPAL_CERT,
        "paypal-auth-algo": "SHA256withRSA",
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    return request(BODY, [(name.encode(), value.encode()) for name, value in headers.items()])


def sns_fields(*, version: str = "2", **changed: str | None) -> dict[str, Any]:
    fields = {
        "Type": "Notification",
        "MessageId": "792cda85-518f-5dd3-9163-81d851212f3a",
        "TopicArn": TOPIC,
        "Subject": "An order",
        "Message": '{"order": 1}\nand a second line',
        "Timestamp": "2023-11-14T22:13:20.000Z",
        **changed,
    }
    signed = "".join(f"{name}\n{fields[name]}\n" for name in sorted(fields) if fields[name] is not None)
    digest = hashes.SHA1() if version == "1" else hashes.SHA256()
    made = rsa_key().sign(signed.encode(), padding.PKCS1v15(), digest)
    return {
        **fields,
        "SignatureVersion": version,
        "Signature": base64.b64encode(made).decode(),
        "SigningCertURL": SNS_CERT,
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
        "MessageAttributes": {"colour": {"Type": "String", "Value": "red"}},
    }


def sns(fields: dict[str, Any] | None = None) -> Request:
    return request(json.dumps(fields or sns_fields()).encode(), [(b"content-type", b"text/plain")])


def bearer(token: str, body: bytes = BODY) -> Request:
    return request(body, [(b"authorization", b"Bearer " + token.encode())])


def pubsub_claims(**changed: Any) -> dict[str, Any]:
    return {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "email": "push@project.iam.gserviceaccount.com",
        "email_verified": True,
        "iat": int(NOW),
        "exp": int(NOW) + 3600,
        **changed,
    }


def entra_claims(**changed: Any) -> dict[str, Any]:
    issuer = f"https://login.microsoftonline.com/{TENANT}/v2.0"
    application = "4962773b-9cdb-44cf-a8bf-237846a00ab7"
    moments = {"iat": int(NOW), "nbf": int(NOW), "exp": int(NOW) + 86399}
    return {"iss": issuer, "aud": APPLICATION, "azp": application, **moments, **changed}


def token(claims: dict[str, Any], key: Any = None, alg: str = "RS256", kid: str = "k1") -> str:
    return jwt.encode(claims, key or rsa_key(), alg, headers={"kid": kid})


def plaid(body: bytes = BODY, **changed: Any) -> Request:
    claims = {"iat": int(NOW), "request_body_sha256": hashlib.sha256(body).hexdigest(), **changed}
    return request(body, [(b"plaid-verification", token(claims, ec_key(), "ES256", "p1").encode())])


JIRA_SECRET = "ATOAabcdefghijklmnopqrstuvwxyz0123456789"


def jira(**changed: Any) -> Request:
    claims = {"iss": "jira", "iat": int(NOW), "exp": int(NOW) + 300, **changed}
    return bearer(jwt.encode(claims, JIRA_SECRET, "HS256"))


def plaid_key(**more: Any) -> bytes:
    return json.dumps({"key": jwk(ec_key(), "p1", alg="ES256", expired_at=None, **more), "request_id": "r"}).encode()


@cache
def cases() -> dict[str, Case]:
    google = {GOOGLE: key_set(jwk(rsa_key("other"), "k0", alg="RS256"), jwk(rsa_key(), "k1", alg="RS256"))}
    entra = {ENTRA: key_set(jwk(rsa_key(), "k1"))}
    plaid_scheme = PLAID_SCHEME.bound((b"plaid-secret",))
    return {
        "discord": Case(DISCORD, raw(ed_key()).hex(), discord(), {}),
        "sendgrid": Case(SENDGRID, base64.b64encode(spki(ec_key())).decode(), sendgrid(), {}),
        "standard_webhooks": Case(STANDARD, "whpk_" + base64.b64encode(raw(ed_key())).decode(), standard(), {}),
        "paypal": Case(
            PAYPAL, WEBHOOK_ID, paypal(), {PAYPAL_CERT: certificate("messageverificationcerts.paypal.com")}
        ),
        "sns": Case(SNS, TOPIC, sns(), {SNS_CERT: certificate("sns.amazonaws.com")}),
        "google_pubsub": Case(PUBSUB, AUDIENCE, bearer(token(pubsub_claims())), google, covered=False),
        "event_grid": Case(EVENT_GRID, APPLICATION, bearer(token(entra_claims())), entra, covered=False),
        "plaid": Case(plaid_scheme, "plaid-secret", plaid(), {PLAID: plaid_key()}),
        "jira": Case(JIRA, JIRA_SECRET, jira(), {}, covered=False),
    }


NAMES = [
    "discord",
    "sendgrid",
    "standard_webhooks",
    "paypal",
    "sns",
    "google_pubsub",
    "event_grid",
    "plaid",
    "jira",
]


def with_header(made: Request, name: bytes, *values: bytes) -> Request:
    """The request with these values of one header instead of its own."""
    kept = [pair for pair in made.headers if pair[0] != name]
    return request(made.body, [*kept, *[(name, value) for value in values]])


def refused(scheme: Scheme, key: bytes, made: Request, ring: Any = None) -> str:
    """Why."""
    with pytest.raises(Rejected) as caught:
        judge(scheme, key, made, ring)
    assert isinstance(caught.value, Malformed | Unauthentic)
    return caught.value.reason


def refusal(name: str, made: Request) -> str:
    case = cases()[name]
    return refused(case.scheme, case.key, made, case.ring())
