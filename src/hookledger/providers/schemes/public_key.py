"""A signature with the provider's private key over a message made from the request, verified with its public key."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from ...errors import ConfigError, Malformed
from ...model import Request
from ..fields import Body, Constant, Field, Header, Present
from . import message as template
from .base import Coverage, Defaults, Draft, Keyring, Presented, adding, key_bytes, only
from .crypto import KeyKind, decoded, fits, installed, shown, signature, test_private, verifies
from .times import Timestamp, seconds, written

if TYPE_CHECKING:
    from .crypto import Public

MAX_SIGNATURES = 4  # each costs a public-key operation and a hash of the body, and the sender chooses their number
_PRIME = 2**255 - 19


class PublicKey(Defaults, frozen=True, kw_only=True):
    """Ed25519, or ECDSA on P-256 with SHA-256; the signature is in a header."""

    coverage: ClassVar[Coverage] = "body"
    header: bytes
    alg: Literal["ed25519", "ecdsa-p256-sha256"]
    message: str = "{body}"
    """The signed message, made of {body}, {ts} and {id}."""
    encoding: Literal["hex", "base64"] = "base64"
    prefix: bytes = b""
    """Text before each signature, such as `v1a,`; elements with another prefix are ignored."""
    separator: bytes | None = None
    """Separator of the header's elements, if it may hold several."""
    timestamp: Timestamp | None = None
    """In a separate header."""
    id_header: bytes | None = None
    """The header whose value is {id}."""
    key: Literal["hex", "base64", "spki"] = "base64"
    """Form of the public key in the secret: its 32 bytes, or a SubjectPublicKeyInfo as base64 or PEM."""
    key_prefix: str = ""
    """Prefix removed from the secret before it is decoded."""
    min_key: int = 32
    test_key: bytes | None = None
    """The PEM of a private key for local tests: its public half is accepted beside the configured one."""

    def __post_init__(self) -> None:
        signed = template.fields(self.message)
        if not {"body"} <= signed <= {"body", "ts", "id"}:
            raise ConfigError("the signed message must contain {body}, and may contain {ts} and {id}")
        template.check_signed(self.message, ts=self.timestamp is not None, ident=self.id_header is not None)
        if self.timestamp is not None and self.timestamp.header is None:
            raise ConfigError("the time of a public-key signature must be in a separate header: set timestamp.header")
        if self.key != "spki" and self.alg != "ed25519":
            raise ConfigError('only an Ed25519 key can be bare bytes: set key="spki"')

    def __repr__(self) -> str:
        return shown(self)

    @property
    def name(self) -> str:
        return self.alg

    @property
    def key_kind(self) -> KeyKind:
        return "ed25519" if self.alg == "ed25519" else "p256"

    @property
    def tolerance(self) -> float | None:
        return None if self.timestamp is None else self.timestamp.tolerance

    def signs(self, field: Field) -> bool:
        if isinstance(field, Header):
            return field.name == self.id_header
        return isinstance(field, Body | Present | Constant)

    def prepare(self, secret: str) -> bytes:
        installed("cryptography")
        if self.test_key is not None:
            test_private(self.test_key, self.key_kind)
        text = secret.strip().removeprefix(self.key_prefix)
        raw = _spki(text, self.key_kind) if self.key == "spki" else key_bytes(text, self.key)
        if self.alg == "ed25519":
            _check_point(raw)
        return raw

    # ── verifying ──

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        value = only(request.headers, self.header, "signature")
        elements = [value] if self.separator is None else value.split(self.separator)
        elements = [element.strip(b" ") for element in elements]
        signatures = [element[len(self.prefix) :] for element in elements if element.startswith(self.prefix)]
        event_id = b""
        if self.id_header is not None:
            event_id = template.signed_id(self.message, request.headers, self.id_header)
        raw, signed_at = b"", None
        if self.timestamp is not None:
            # Without a separator, as in {ts}{body}, a digit can move between the two: the time is then wrong by a
            # factor of ten, beyond any tolerance.
            raw = self.timestamp.read(request.headers, [])
            signed_at = seconds(raw, self.timestamp.unit)
        if not 0 < len(signatures) <= MAX_SIGNATURES:
            raise Malformed("signature_malformed")
        return Presented(
            candidates=tuple(signatures),
            messages=(self._message(request.body, raw, event_id),),
            signed_at=signed_at,
            id=event_id,
        )

    def _message(self, body: bytes, timestamp: bytes, event_id: bytes) -> bytes:
        return template.render(self.message, {"body": body, "ts": timestamp, "id": event_id})

    def matches(self, key: bytes, presented: Presented) -> bool:
        publics = [_public(key, self.key_kind)]
        if self.test_key is not None:
            publics.append(test_private(self.test_key, self.key_kind).public_key())
        [message] = presented.messages
        for candidate in presented.candidates:
            made = decoded(candidate, self.encoding)
            if made and any(verifies(public, made, message) for public in publics):
                return True
        return False

    def plausible(self, presented: Presented) -> bool:
        made = [decoded(candidate, self.encoding) or b"" for candidate in presented.candidates]
        if self.alg == "ed25519":
            return any(len(signature) == 64 for signature in made)
        return any(8 <= len(signature) <= 72 and signature[0] == 0x30 for signature in made)  # a short DER sequence

    # ── signing ──

    def sign(self, key: bytes, draft: Draft) -> Draft:
        installed("cryptography")
        private = test_private(self.test_key, self.key_kind)
        headers: dict[bytes, str] = {}
        timestamp = b""
        if self.timestamp is not None and self.timestamp.header is not None:
            timestamp = written(draft.now, self.timestamp.unit)
            headers[self.timestamp.header] = timestamp.decode()
        if self.id_header is not None:
            headers[self.id_header] = draft.id
        made = signature(private, self._message(draft.body, timestamp, draft.id.encode()))
        text = made.hex() if self.encoding == "hex" else base64.b64encode(made).decode()
        return adding(draft, {**headers, self.header: self.prefix.decode() + text})


def _spki(text: str, kind: KeyKind) -> bytes:
    """Return the key of a SubjectPublicKeyInfo, in DER; for Ed25519 its 32 bytes. Checks the curve's equation."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_der_public_key,
        load_pem_public_key,
    )

    try:
        if text.startswith("-----BEGIN"):
            key = load_pem_public_key(text.encode())
        else:
            key = load_der_public_key(key_bytes("".join(text.split()), "base64"))
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is not a public key as PEM or as base64 of DER") from None
    if not fits(kind, key):
        raise ValueError(f"it is not a public key of kind {kind}")
    if kind == "ed25519":
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@lru_cache(maxsize=1024)
def _public(key: bytes, kind: KeyKind) -> Public:
    """Return the key object of a prepared key."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    if kind == "ed25519":
        return Ed25519PublicKey.from_public_bytes(key)
    loaded = load_der_public_key(key)
    assert isinstance(loaded, EllipticCurvePublicKey)
    return loaded


def _check_point(raw: bytes) -> None:
    """Raise ValueError unless these bytes are a safe point of edwards25519.

    OpenSSL accepts any 32 bytes. For a point of small order, such as 32 zeros, anyone can sign.
    """
    if len(raw) != 32:
        raise ValueError("it is not an Ed25519 key of 32 bytes")
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    curve_d = -121665 * pow(121666, -1, _PRIME)
    squared = (y * y - 1) * pow(curve_d * y * y + 1, -1, _PRIME) % _PRIME  # x², from the curve's equation
    if y >= _PRIME or pow(squared, (_PRIME - 1) // 2, _PRIME) == _PRIME - 1:
        raise ValueError("it is not an Ed25519 key: not a point of the curve")
    if squared * y % _PRIME == 0 or (squared + y * y) % _PRIME == 0:  # order 1, 2 or 4; order 8
        raise ValueError("it is a point of small order, for which anyone can sign")
