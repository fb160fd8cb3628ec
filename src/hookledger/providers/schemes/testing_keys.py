"""Keys for local tests of providers that sign with a private key."""

from __future__ import annotations

from typing import Protocol

from ...errors import ConfigError
from .crypto import KeyKind, installed


class Tested(Protocol):
    """PublicKey, Certificate or Jwt."""

    @property
    def key_kind(self) -> KeyKind | None:
        """None if the secret itself signs."""
        ...


def new_test_key(scheme: Tested) -> bytes:
    """Return the PEM of a new private key of the scheme's kind, for its field `test_key`.

    Anyone who has it can sign for the source that uses it: not for production.
    """
    installed("cryptography")
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    match scheme.key_kind:
        case "ed25519":
            key = ed25519.Ed25519PrivateKey.generate()
        case "p256":
            key = ec.generate_private_key(ec.SECP256R1())
        case "rsa":
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case None:
            raise ConfigError("this scheme signs with its secret: it needs no test key")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
