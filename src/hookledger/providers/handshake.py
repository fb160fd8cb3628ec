"""How a provider asks whether an endpoint is there, and what it wants to hear. Data; receive/handshake.py answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .fields import Body, Field


class Handshake(Struct, frozen=True, kw_only=True):
    """One question. It is recognised by its method and by `when`; anything else is a delivery, or refused."""

    method: Literal["GET", "HEAD", "POST", "OPTIONS"]
    when: tuple[tuple[Field, str | None], ...]
    """Each field must be there, and say this where something is named."""
    body: str | None = None
    """What the whole body must look like, as a regular expression, where the question is not signed."""
    value: Field | None = None
    """What is to be given back; at most 1,024 characters of `alphabet`."""
    alphabet: str = r"[A-Za-z0-9._~+/=:-]+"
    """What a value may consist of: nothing that a browser would take for a page."""
    signed: bool = False
    """The question is signed like a delivery, and is answered only if the signature is right."""
    token: Field | None = None
    """Where the question presents the source's `verify_token`; it is refused unless it is that one."""

    text: str | None = None
    """The answer as text, of {value} and {mac}."""
    json: tuple[tuple[str, str | int], ...] | None = None
    """The answer as a JSON object; each text of {value} and {mac}."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the answer, of {value}."""
    status: int = 200
    mac: Literal["sha1", "sha256"] | None = None
    """{mac} is the HMAC of the value, in hex, under the source's first secret."""
    paired: bool = False
    """The secret is a pair, whose public half precedes the HMAC: `PUBLIC|hmac`."""
    origins: bool = False
    """The value must be one of the source's `origins`."""
    fetch: Body | None = None
    """The URL to get before answering."""
    fetch_pattern: str = ""
    """What that URL must look like, as a regular expression: https, and a host that is the provider's alone."""
    keep: bool = False
    """Record it as an event all the same."""
