"""Secrets of the forms that providers give out, and key pairs where they sign with one: all made up."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from msgspec import Struct


class Keys(Struct, frozen=True):
    signing: str
    checking: str
    """What the receiver is given; the signing secret itself, unless the scheme has key pairs."""


def _base64(rng: Random, size: int) -> str:
    return b64encode(rng.randbytes(size)).decode()


def fresh_secret(name: str, rng: Random) -> Keys:
    """A secret of the provider's form that no provider ever gave out."""
    if name == "discord_interactions":
        seed = rng.randbytes(32)
        public = ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key()
        return Keys(seed.hex(), public.public_bytes_raw().hex())
    if name == "sendgrid":
        return _sendgrid_keys(rng.getrandbits(250) + 1)
    if name == "google_pubsub":
        return _google_keys(rng.getrandbits(64))
    secret = _FORMS[name](rng) if name in _FORMS else "made-up-" + rng.randbytes(16).hex()
    return Keys(secret, secret)


_FORMS: dict[str, Callable[[Random], str]] = {
    "stripe": lambda rng: "whsec_madeup" + rng.randbytes(13).hex(),
    "svix": lambda rng: "whsec_" + _base64(rng, 24),
    "clerk": lambda rng: "whsec_" + _base64(rng, 24),
    "resend": lambda rng: "whsec_" + _base64(rng, 24),
    "standard_webhooks": lambda rng: "whsec_" + _base64(rng, 32),
    "openai": lambda rng: "whsec_" + _base64(rng, 32),
    "anthropic": lambda rng: "whsec_" + _base64(rng, 32),
    "gitlab_signed": lambda rng: "whsec_" + _base64(rng, 32),
    "slack_events": lambda rng: rng.randbytes(16).hex(),
    "twilio": lambda rng: rng.randbytes(16).hex(),
    "line": lambda rng: rng.randbytes(16).hex(),
    "paddle": lambda rng: "pdl_ntfset_madeup_" + rng.randbytes(16).hex(),
    "adyen": lambda rng: rng.randbytes(32).hex().upper(),
    "adyen_classic": lambda rng: rng.randbytes(32).hex().upper(),
    "braintree": lambda rng: f"madeup{rng.randbytes(5).hex()}:{rng.randbytes(16).hex()}",
}


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


def _sendgrid_keys(number: int) -> Keys:
    key = ec.derive_private_key(number, ec.SECP256R1())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.public_key().public_bytes(serialization.Encoding.DER, form)
    return Keys(_private_pem(key), b64encode(public).decode())


@cache
def _google_keys(number: int) -> Keys:
    """RSA keys cannot be drawn from a seed: the same number gives the same keys within one process only."""
    key = rsa.generate_private_key(65537, 2048)
    return Keys(_private_pem(key), _certificate(_private_pem(key)))


@cache
def _certificate(private: str) -> str:
    key = private_key(private)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "made-up.example.com")])
    builder = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, serial_number=1)
        .public_key(key.public_key())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def certificate_id(private: str) -> str:
    """PKCS#1 signatures are the same each time, so a key's certificate and its name are too."""
    certificate = x509.load_pem_x509_certificate(_certificate(private).encode())
    return certificate.fingerprint(hashes.SHA1()).hex()


def private_key(pem: str) -> Any:
    return serialization.load_pem_private_key(pem.encode(), None)
