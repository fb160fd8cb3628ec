"""How a request proves that it comes from the provider: pure functions over bytes.

`Hmac` covers every keyed-hash scheme whose signature is in a header. Signatures of other kinds (tokens, RSA,
Ed25519, JWT, signatures inside the body) are further structs beside it, joined into `Scheme`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from functools import cache, lru_cache
from itertools import pairwise
from string import Formatter
from typing import Literal

from msgspec import Struct

from ..errors import ConfigError, Malformed, Unauthentic
from ..model import Headers

PLACEHOLDERS = frozenset({"body", "ts", "id", "url"})
MAX_TIMESTAMP_DIGITS = 15  # milliseconds until the year 33658, and still exact as a float

_PER_SECOND = {"s": 1, "ms": 1000}
_ALPHABET = {"hex": re.compile(rb"[0-9a-f]+"), "base64": re.compile(rb"[A-Za-z0-9+/]+={0,2}")}


class Timestamp(Struct, frozen=True, kw_only=True):
    """Where the signed time is: a header of its own, or an element of the signature header."""

    header: bytes | None = None
    prefix: bytes | None = None
    unit: Literal["s", "ms"] = "s"
    tolerance: float = 300.0
    """Seconds either way: the provider's advice where redeliveries are signed anew, else its retry window."""


class Hmac(Struct, frozen=True, kw_only=True):
    """A keyed hash of a message made from the request, presented in a header."""

    header: bytes
    message: str = "{body}"
    """What is signed, of {body}, {ts} (the presented timestamp's own bytes), {id} and {url}."""
    alg: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: bytes = b""
    """What precedes each signature, e.g. `sha256=` or `v1,`; elements with another prefix are not for us."""
    separator: bytes | None = None
    """Between the elements of the header, where it may hold several."""
    timestamp: Timestamp | None = None
    id_header: bytes | None = None
    """The header whose value is {id}."""
    key: Literal["utf8", "base64", "hex"] = "utf8"
    """How the key is written in the secret. `whsec_` says nothing: Stripe signs with the text itself,
    Standard Webhooks with the bytes that the base64 after it stands for."""
    key_prefix: str = ""
    """Dropped from the secret before it is decoded."""
    min_key: int = 8
    """Bytes; anything shorter is a mistake."""

    def __post_init__(self) -> None:
        signed = self.fields
        if self.timestamp is not None and (self.timestamp.header is None) == (self.timestamp.prefix is None):
            raise ConfigError("a timestamp has a header of its own or a prefix in the signature header: name one")
        for name, given in (("ts", self.timestamp is not None), ("id", self.id_header is not None)):
            # An unsigned timestamp proves no freshness, an unsigned id no identity.
            if given != (name in signed):
                raise ConfigError(f"{{{name}}} must be in the signed message and have a place in the request")
        if self.id_header is not None and not _after_id(self.message):
            raise ConfigError("{id} needs a separator after it, to know where the id ends")

    @property
    def fields(self) -> frozenset[str]:
        """The placeholders in the signed message."""
        return frozenset(field for _, field in _parts(self.message) if field)

    @property
    def name(self) -> str:
        return f"hmac-{self.alg}"


Scheme = Hmac


class Presented(Struct, frozen=True):
    """What a request's headers claim, well-formed but not yet believed."""

    signatures: tuple[bytes, ...]
    """Still encoded: comparing encoded bytes leaves nothing to decode, so nothing that can fail."""
    timestamp: bytes = b""
    signed_at: float | None = None
    id: bytes = b""


@cache
def _parts(template: str) -> tuple[tuple[bytes, str | None], ...]:
    """The template as (literal, placeholder after it)."""
    try:
        parts = [(literal.encode(), field) for literal, field, _, _ in Formatter().parse(template)]
    except ValueError as error:
        raise ConfigError(f"the signed message {template!r} is not a template: {error}") from error
    unknown = {field for _, field in parts if field is not None} - PLACEHOLDERS
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in sorted(PLACEHOLDERS))
        raise ConfigError(f"the signed message {template!r} may contain {known} and nothing else in braces")
    return tuple(parts)


@cache
def _after_id(template: str) -> bytes:
    parts = _parts(template)
    return next((after[0] for part, after in pairwise(parts) if part[1] == "id"), b"")


def prepare_key(scheme: Scheme, secret: str) -> bytes:
    """The key's bytes; ValueError, without the secret in it, if it is not written as the scheme says."""
    text = secret.removeprefix(scheme.key_prefix)
    try:
        if scheme.key == "utf8":
            return text.encode()
        if scheme.key == "hex":
            return binascii.unhexlify(text)
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:  # binascii.Error and UnicodeEncodeError too; their texts may quote the secret
        raise ValueError(f"not valid {scheme.key}") from None


def read(scheme: Scheme, headers: Headers) -> Presented:
    """Take from the headers what the scheme needs; refuse what is absent, doubled or of the wrong form."""
    presented = _only(headers, scheme.header, "signature")
    elements = [presented] if scheme.separator is None else presented.split(scheme.separator)
    elements = [element.strip(b" ") for element in elements]
    prefix = scheme.prefix
    signatures = tuple([element[len(prefix) :] for element in elements if element.startswith(prefix)])

    event_id = b"" if scheme.id_header is None else _only(headers, scheme.id_header, "id")
    # "{id}.{ts}.{body}" with id "a.1" and ts "2" is also id "a", ts "1", body "2.…": one signature, two ids.
    # Standard Webhooks tells senders to keep the separator out of ids; we refuse an id that has it.
    if event_id and _after_id(scheme.message) in event_id:
        raise Malformed("id_malformed")
    raw, signed_at = b"", None
    if scheme.timestamp is not None:
        raw = _timestamp(scheme.timestamp, headers, elements)
        signed_at = int(raw) / _PER_SECOND[scheme.timestamp.unit]
    if not signatures:
        raise Malformed("signature_malformed")
    return Presented(signatures, raw, signed_at, event_id)


def _only(headers: Headers, wanted: bytes, role: str) -> bytes:
    """The one value of a header."""
    found = None
    for name, value in headers:
        if name == wanted:
            if found is not None:
                raise Malformed(f"{role}_duplicate")
            found = value
    if not found:
        raise Unauthentic(f"{role}_missing")
    return found


def _timestamp(timestamp: Timestamp, headers: Headers, elements: list[bytes]) -> bytes:
    if timestamp.header is not None:
        raw = _only(headers, timestamp.header, "timestamp")
    else:
        assert timestamp.prefix is not None
        times = [e[len(timestamp.prefix) :] for e in elements if e.startswith(timestamp.prefix)]
        if not times:
            raise Unauthentic("timestamp_missing")
        if len(times) > 1:
            raise Malformed("timestamp_duplicate")
        raw = times[0]
    # bytes.isdigit knows ASCII digits only; int() alone takes signs, spaces, "_" and a megabyte of digits.
    if not raw.isdigit() or len(raw) > MAX_TIMESTAMP_DIGITS:
        raise Malformed("timestamp_malformed")
    return raw


def message(scheme: Scheme, presented: Presented, body: bytes, url: bytes = b"") -> bytes:
    """The bytes that are signed."""
    values = {"body": body, "ts": presented.timestamp, "id": presented.id, "url": url, None: b""}
    return b"".join([piece for text, field in _parts(scheme.message) for piece in (text, values[field])])


def signature(scheme: Scheme, key: bytes, signed: bytes) -> bytes:
    """The signature as it appears in the header, less its prefix."""
    mac = _keyed(key, scheme.alg).copy()
    mac.update(signed)
    return mac.hexdigest().encode() if scheme.encoding == "hex" else base64.b64encode(mac.digest())


@lru_cache(maxsize=1024)
def _keyed(key: bytes, alg: str) -> hmac.HMAC:
    """The hash with the key already in it: setting one up costs more than hashing a webhook."""
    return hmac.new(key, digestmod=alg)


def well_formed(scheme: Scheme, candidate: bytes, expected: bytes) -> bool:
    """Whether a signature that did not match could have been one at all."""
    return len(candidate) == len(expected) and _ALPHABET[scheme.encoding].fullmatch(candidate) is not None
