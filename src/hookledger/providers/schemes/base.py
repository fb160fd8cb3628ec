"""What all signature schemes have in common.

A scheme is data with four functions: prepare the key (`prepare`), read the request's claim (`read`), check it with a
key (`matches`), and sign like the provider (`sign`). They are pure: no I/O, no clock.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from ...errors import HookledgerError, Malformed, Unauthentic
from ...model import Headers, Request
from ..fields import Field

Coverage = Literal["body", "fields", "checksum", "nothing"]
"""How much of the body the signature covers: all, some fields, only a checksum that can be forged, or nothing."""

KeyForm = Literal["utf8", "base64", "hex", "sha1"]


class Where(Struct, frozen=True):
    """Where a key is published. Only at hosts that the contract allows, never from a request alone."""

    url: str
    post: bytes | None = None
    """JSON to POST; None: GET. May hold credentials, so it is never shown."""

    fixed: bool = False
    """Whether it is the contract's own URL: if the key is unusable, the request is not to blame."""

    def __repr__(self) -> str:
        return f"Where({self.url!r})"


class Presented(Struct, frozen=True, kw_only=True):
    """What a request claims: well-formed, not verified yet."""

    candidates: tuple[bytes, ...]
    """Signatures, tokens or credentials, as written."""
    messages: tuple[bytes, ...] = (b"",)
    """The possible signed messages; several if the provider is inconsistent."""
    signed_at: float | None = None
    """The signed time; None without one, or if it is in the body, which is read after verification."""
    id: bytes = b""
    material: bytes = b""
    """The public key or certificate fetched for this request."""
    where: Where | None = None
    """Where that was fetched from."""


class KeyNeeded(HookledgerError):
    """The key must be fetched from `where` before this request can be verified."""

    def __init__(self, where: Where, *, again: bool = False) -> None:
        super().__init__(f"a key from {where.url} is needed")
        self.where = where
        self.again = again
        """Fetch again: the cached keys do not include it, but newer ones may."""


class Keyring(Protocol):
    """The published keys that have been fetched."""

    def get(self, where: Where) -> bytes:
        """Return what was fetched from there; raise KeyNeeded if nothing was."""
        ...

    def proved(self, where: Where) -> None:
        """Note that a key from there verified a request."""
        ...


class NoKeys:
    """The keyring of schemes that need no published key."""

    def get(self, where: Where) -> bytes:
        raise KeyNeeded(where)

    def proved(self, where: Where) -> None:
        pass


class Draft(Struct, frozen=True, kw_only=True):
    """A delivery to sign like the provider."""

    url: str
    """The URL that the provider calls, with its query."""
    body: bytes
    headers: dict[bytes, str] = msgspec.field(default_factory=dict)
    method: str = "POST"
    now: float = 0.0
    id: str = ""


def adding(draft: Draft, headers: dict[bytes, str], body: bytes | None = None, url: str | None = None) -> Draft:
    """Return a copy with more headers, or another body or URL."""
    return msgspec.structs.replace(
        draft,
        headers={**draft.headers, **headers},
        body=draft.body if body is None else body,
        url=draft.url if url is None else url,
    )


class Scheme(Protocol):
    """One of hmac.Hmac, public_key.PublicKey, certificate.Certificate, jwt.Jwt, token.Token, keyed_hash.KeyedHash and
    adyen.AdyenItems."""

    @property
    def name(self) -> str:
        """The name in the ledger, such as `hmac-sha256`."""
        ...

    @property
    def coverage(self) -> Coverage: ...

    @property
    def tolerance(self) -> float | None:
        """Seconds that the signed time may be old; None where no time is signed."""
        ...

    @property
    def min_key(self) -> int:
        """The shortest valid key, in bytes."""
        ...

    @property
    def signs_url(self) -> bool:
        """Whether the URL is signed."""
        ...

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """Headers that hold a credential, never to be stored."""
        ...

    @property
    def secret_parameters(self) -> frozenset[str]:
        """Parameters of the URL that hold a credential, never to be stored."""
        ...

    def signs(self, field: Field) -> bool:
        """Whether the signature covers that field."""
        ...

    def prepare(self, secret: str) -> bytes:
        """Return the key of a secret; raise ValueError, without the secret in it, if it is malformed."""
        ...

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        """Read the request's claim; raise Malformed or Unauthentic for what is missing, duplicate or malformed."""
        ...

    def matches(self, key: bytes, presented: Presented) -> bool:
        """Whether the claim matches this key; raise Unauthentic if the signature matches but its content is wrong."""
        ...

    def plausible(self, presented: Presented) -> bool:
        """Whether a claim that did not match has the form of a signature."""
        ...

    def signed_at(self, presented: Presented, request: Request) -> float | None:
        """Return the signed time of a verified request; raise Malformed or Unauthentic if it has none."""
        ...

    def sign(self, key: bytes, draft: Draft) -> Draft:
        """Return the delivery as the provider would send it."""
        ...


class Defaults(Struct, frozen=True):
    """What a scheme does unless it says otherwise: it signs neither a time nor the URL, and reads no credential."""

    @property
    def tolerance(self) -> float | None:
        return None

    @property
    def signs_url(self) -> bool:
        return False

    @property
    def secret_headers(self) -> frozenset[bytes]:
        return frozenset()

    @property
    def secret_parameters(self) -> frozenset[str]:
        return frozenset()

    def plausible(self, presented: Presented) -> bool:
        return True  # `read` checks the form, before a key is fetched

    def signed_at(self, presented: Presented, request: Request) -> float | None:
        return presented.signed_at


# ── shared steps ─────────────────────────────────────────────────────────────


def only(headers: Headers, wanted: bytes, role: str) -> bytes:
    """Return the value of a header that must occur once."""
    found = None
    for name, value in headers:
        if name == wanted:
            if found is not None:
                raise Malformed(f"{role}_duplicate")
            found = value
    if not found:
        raise Unauthentic(f"{role}_missing")
    return found


def key_bytes(text: str, form: KeyForm) -> bytes:
    """Return the decoded key; raise ValueError, without the secret in it, if it is malformed."""
    try:
        match form:
            case "utf8":
                return text.encode()
            case "hex":
                return binascii.unhexlify(text)
            case "base64":
                return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
            case "sha1":
                return hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    except ValueError:  # includes binascii.Error and UnicodeEncodeError, whose texts may quote the secret
        raise ValueError(f"it is not valid {form}") from None
