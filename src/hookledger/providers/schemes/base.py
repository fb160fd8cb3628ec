"""What every way of proving a request has in common.

A scheme is data with four questions to it: what is the key (`prepare`), what does the request claim (`read`), does
this key bear it out (`matches`), and how would the provider have signed (`sign`). They are pure: no I/O, no clock.
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
"""How much of the body the proof covers: all of it, some fields, only a checksum that can be forged, or nothing."""

KeyForm = Literal["utf8", "base64", "hex", "sha1"]


class Where(Struct, frozen=True):
    """Where a key is published. Made only from pinned hosts, never from what a request says alone."""

    url: str
    post: bytes | None = None
    """What to post as JSON; None: it is got. May hold credentials, so it is never shown."""

    fixed: bool = False
    """The contract's own address: if nothing good comes from there, it is not the request's fault."""

    def __repr__(self) -> str:
        return f"Where({self.url!r})"


class Presented(Struct, frozen=True, kw_only=True):
    """What a request claims, well-formed but not yet believed."""

    candidates: tuple[bytes, ...]
    """Signatures, tokens or credentials, as they were written."""
    messages: tuple[bytes, ...] = (b"",)
    """What may have been signed; several where a provider is not sure itself."""
    signed_at: float | None = None
    """The signed time; None where none is, or where it is in the body and read once that is believed."""
    id: bytes = b""
    material: bytes = b""
    """A public key or certificate that was fetched for this request."""
    where: Where | None = None
    """Where that was fetched from."""


class KeyNeeded(HookledgerError):
    """The key must be fetched from `where` before this request can be judged."""

    def __init__(self, where: Where, *, again: bool = False) -> None:
        super().__init__(f"a key from {where.url} is needed")
        self.where = where
        self.again = again
        """What we have is not enough: perhaps there are newer keys."""


class Keyring(Protocol):
    """The published keys that were fetched."""

    def get(self, where: Where) -> bytes:
        """What was fetched from there; KeyNeeded if nothing was."""
        ...

    def proved(self, where: Where) -> None:
        """A request is authentic by what was fetched from there."""
        ...


class NoKeys:
    """For schemes that need no published key."""

    def get(self, where: Where) -> bytes:
        raise KeyNeeded(where)

    def proved(self, where: Where) -> None:
        pass


class Draft(Struct, frozen=True, kw_only=True):
    """A delivery that is to be signed as the provider would."""

    url: str
    """As the provider calls it, with its query."""
    body: bytes
    headers: dict[bytes, str] = msgspec.field(default_factory=dict)
    method: str = "POST"
    now: float = 0.0
    id: str = ""


def adding(draft: Draft, headers: dict[bytes, str], body: bytes | None = None, url: str | None = None) -> Draft:
    """A copy with more headers, or another body or URL."""
    return msgspec.structs.replace(
        draft,
        headers={**draft.headers, **headers},
        body=draft.body if body is None else body,
        url=draft.url if url is None else url,
    )


class Scheme(Protocol):
    """One of hmac.Hmac, public_key.PublicKey, certificate.Certificate, jwt.Jwt, token.Token, unsigned.Unsigned and
    the plug-ins."""

    @property
    def name(self) -> str:
        """For the ledger, such as `hmac-sha256`."""
        ...

    @property
    def coverage(self) -> Coverage: ...

    @property
    def tolerance(self) -> float | None:
        """Seconds that the signed time may be old; None where no time is signed."""
        ...

    @property
    def min_key(self) -> int:
        """Bytes; anything shorter is a mistake."""
        ...

    @property
    def signs_url(self) -> bool:
        """Whether the URL is part of what is signed."""
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
        """Whether that field is covered by the proof."""
        ...

    def prepare(self, secret: str) -> bytes:
        """The key that a secret stands for; ValueError, without the secret in it, if it is not written so."""
        ...

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        """Take from the request what is needed; Malformed or Unauthentic for what is absent, doubled or of the
        wrong form."""
        ...

    def matches(self, key: bytes, presented: Presented) -> bool:
        """Whether this key bears the claim out; Unauthentic where the signature is good and what it says is not."""
        ...

    def plausible(self, presented: Presented) -> bool:
        """Whether what did not match could have been a signature at all."""
        ...

    def signed_at(self, presented: Presented, request: Request) -> float | None:
        """The signed time of a request that is believed; Malformed or Unauthentic if it has none."""
        ...

    def sign(self, key: bytes, draft: Draft) -> Draft:
        """The delivery as the provider would send it."""
        ...


# ── shared steps ─────────────────────────────────────────────────────────────


def only(headers: Headers, wanted: bytes, role: str) -> bytes:
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


def key_bytes(text: str, form: KeyForm) -> bytes:
    """ValueError, without the secret in it, if it is not written in that form."""
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
    except ValueError:  # binascii.Error and UnicodeEncodeError too; their texts may quote the secret
        raise ValueError(f"not valid {form}") from None
