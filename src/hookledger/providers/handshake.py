"""How a provider checks an endpoint before it delivers, as data. receive/handshake.py answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .fields import Body, Field


class Handshake(Struct, frozen=True, kw_only=True):
    """One handshake, recognised by its method and `when`; any other request is a delivery or is rejected."""

    method: Literal["GET", "HEAD", "POST", "OPTIONS"]
    when: tuple[tuple[Field, str | None], ...]
    """Fields that must be present, each with this value unless it is None."""
    body: str | None = None
    """A regular expression for the whole body of an unsigned handshake."""
    value: Field | None = None
    """The challenge that the answer contains; at most 1,024 characters of `alphabet`."""
    alphabet: str = r"[A-Za-z0-9._~+/=:-]+"
    """A regular expression for the challenge: nothing that a browser would render as a page."""
    signed: bool = False
    """Whether it is signed like a delivery, and answered only if the signature matches."""
    token: Field | None = None
    """The field with the source's `verify_token`; any other token is rejected."""

    text: str | None = None
    """The answer as text, with {value} and {mac}."""
    json: tuple[tuple[str, str | int], ...] | None = None
    """The answer as a JSON object; its texts may have {value} and {mac}."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the answer; they may have {value}."""
    status: int = 200
    mac: Literal["sha1", "sha256"] | None = None
    """{mac} is the HMAC of the value, in hex, with the source's first secret."""
    paired: bool = False
    """Whether the secret is a pair, whose public half precedes the HMAC: `PUBLIC|hmac`."""
    origins: bool = False
    """Whether the value must be one of the source's `origins`."""
    fetch: Body | None = None
    """The URL to fetch before answering."""
    fetch_pattern: str = ""
    """A regular expression for that URL: https, and a host that only the provider controls."""
    keep: bool = False
    """Whether it is also recorded as an event."""
