"""Every published signature is what the standard library makes of its input, and the provider's SDK accepts it."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from hookledger.providers.catalogue import contracts
from hookledger.receive.secrets import Secret
from tests.oracles import ours
from tests.oracles.delivery import Delivery
from tests.oracles.sdks import ORACLES
from tests.oracles.vectors import VECTORS, Vector


def named(vector: Vector) -> str:
    return f"{vector.provider}-{vector.signature[:8]}"


def key_of(vector: Vector) -> bytes:
    match vector.key:
        case "utf8":
            return vector.secret.encode()
        case "hex":
            return bytes.fromhex(vector.secret)
        case "base64":
            return b64decode(vector.secret.removeprefix("whsec_").removeprefix("whpk_"))
        case "sha1":
            return hashlib.sha1(vector.secret.encode()).digest()


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_the_published_signature_is_recomputed(vector: Vector) -> None:
    key = key_of(vector)
    published = bytes.fromhex(vector.signature) if vector.encoding == "hex" else b64decode(vector.signature)
    match vector.algorithm:
        case "hmac-sha1":
            assert hmac.new(key, vector.signed, "sha1").digest() == published
        case "hmac-sha256":
            assert hmac.new(key, vector.signed, "sha256").digest() == published
        case "sha256":
            assert hashlib.sha256(vector.signed).digest() == published
        case "ed25519":
            Ed25519PublicKey.from_public_bytes(key).verify(published, vector.signed)
        case "ecdsa-p256":
            public = load_der_public_key(key)
            assert isinstance(public, EllipticCurvePublicKey)
            public.verify(published, vector.signed, ECDSA(hashes.SHA256()))


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.provider in ORACLES], ids=named)
def test_the_sdk_accepts_the_published_delivery(vector: Vector) -> None:
    assert ORACLES[vector.provider].accepts(vector.delivery, [vector.secret], vector.at)


SHORT = {"twilio": 8, "coinbase_cdp": 8}
"""Whose published secrets are shorter than any that we would let pass; the key goes in without that check."""


def contract_of(vector: Vector) -> str:
    with_digest = vector.provider == "twilio" and "bodySHA256" in vector.url
    return "twilio_json" if with_digest else vector.provider


# proves R1
@pytest.mark.parametrize("vector", [v for v in VECTORS if v.provider != "braintree_challenge"], ids=named)
def test_we_accept_the_published_delivery(vector: Vector) -> None:
    name = contract_of(vector)
    key = contracts()[name].scheme.prepare(vector.secret)
    where = ours.endpoint(name, [Secret(key, "published")], vector.url)
    assert len(key) >= where.contract.scheme.min_key or vector.provider in SHORT
    assert ours.refusal(where, vector.delivery, vector.at) is None
    broken = Delivery(vector.method, vector.url, vector.headers, vector.body.replace(b"1", b"2", 1) + b"0")
    if where.contract.body_authenticated:
        assert ours.refusal(where, broken, vector.at) is not None


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_a_vector_carries_its_signature_as_it_travels(vector: Vector) -> None:
    travels = [*vector.headers.values(), vector.body.decode()]
    assert vector.provider == "braintree_challenge" or any(vector.signature in part for part in travels)


def test_no_vector_stands_twice() -> None:
    assert len({(vector.provider, vector.signature) for vector in VECTORS}) == len(VECTORS)
    assert all(vector.source for vector in VECTORS)
