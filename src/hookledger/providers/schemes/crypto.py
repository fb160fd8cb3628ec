"""What schemes with public keys share: the extra `crypto`, test keys and signature checks."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ...errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

    Public = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey
    Private = Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey

KeyKind = Literal["ed25519", "p256", "rsa"]

MIN_RSA_BITS = 2048
_HIDDEN = frozenset({"test_key", "secrets"})


def installed(*packages: str) -> None:
    """Raise ConfigError if one of the packages is missing."""
    if any(find_spec(package) is None for package in packages):
        raise ConfigError("packages for public-key signatures are missing: run pip install hookledger[crypto]")


def shown(scheme: Struct) -> str:
    """Return the scheme's `repr` without its keys."""
    fields = [f"{name}={getattr(scheme, name)!r}" for name in scheme.__struct_fields__ if name not in _HIDDEN]
    return f"{type(scheme).__name__}({', '.join(fields)})"


def decoded(text: bytes, encoding: Literal["hex", "base64"]) -> bytes | None:
    """Return the decoded signature; None if it is malformed or not canonical base64."""
    try:
        if encoding == "hex":
            return binascii.unhexlify(text)
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if base64.b64encode(raw) == text else None


def fits(kind: KeyKind, key: object) -> bool:
    """Whether it is a strong public key of that kind."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match kind:
        case "ed25519":
            return isinstance(key, ed25519.Ed25519PublicKey)
        case "p256":
            return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
        case "rsa":
            return isinstance(key, rsa.RSAPublicKey) and key.key_size >= MIN_RSA_BITS


def verifies(public: Public, signature: bytes, message: bytes, *, sha1: bool = False) -> bool:
    """Whether the key's signature of this message matches: Ed25519, ECDSA with SHA-256, or PKCS#1 v1.5."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding

    digest = hashes.SHA1() if sha1 else hashes.SHA256()  # noqa: S303 - SNS signs version 1 so
    try:
        if isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(signature, message)
        elif isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(signature, message, ec.ECDSA(digest))
        else:
            public.verify(signature, message, padding.PKCS1v15(), digest)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def signature(private: Private, message: bytes, *, sha1: bool = False) -> bytes:
    """Return a signature that `verifies` accepts."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding

    digest = hashes.SHA1() if sha1 else hashes.SHA256()  # noqa: S303
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return private.sign(message)
    if isinstance(private, ec.EllipticCurvePrivateKey):
        return private.sign(message, ec.ECDSA(digest))
    return private.sign(message, padding.PKCS1v15(), digest)


@lru_cache(maxsize=64)
def test_private(pem: bytes | None, kind: KeyKind) -> Private:
    """Return the test key; raise ConfigError without one, or for one of another kind."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    how = "make one with hookledger.providers.schemes.testing_keys.new_test_key(scheme)"
    if pem is None:
        raise ConfigError(f"only the provider can sign with its key: set test_key for local tests; {how}")
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # their messages may quote the key
        raise ConfigError(f"test_key is not a PEM private key without a password: {how}") from None
    if isinstance(key, (ed25519.Ed25519PrivateKey, ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)) and fits(
        kind, key.public_key()
    ):
        return key
    raise ConfigError(f"test_key is not a private key of kind {kind}: {how}")
