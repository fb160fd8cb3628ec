"""Make a provider's handshake request, for `hookledger send --handshake`."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from ..errors import ConfigError
from .contract import Contract
from .fields import Body, Field, Header, Query, written
from .handshake import Handshake
from .schemes.base import Draft


class HandshakeRequest(Struct, frozen=True):
    handshake: Handshake
    draft: Draft
    """Not signed yet."""
    value: str
    """The challenge."""


def handshake_request(
    contract: Contract, url: str, *, token: str | None, origins: frozenset[str], now: float
) -> HandshakeRequest:
    """Return a request for the contract's first handshake. `token`: the source's verify_token."""
    if not contract.handshakes:
        raise ConfigError(f"{contract.title} has no handshake: leave out --handshake")
    handshake = contract.handshakes[0]
    if handshake.fetch is not None:
        raise ConfigError(
            f"only {contract.title} can send its handshake: it makes the receiver fetch a URL of the provider"
        )
    value = _value(handshake, origins)
    fields: list[tuple[Field, str]] = [(field, expected or value) for field, expected in handshake.when]
    if handshake.value is not None:
        fields = [pair for pair in fields if pair[0] != handshake.value] + [(handshake.value, value)]
    if handshake.token is not None:
        if token is None:
            raise ConfigError(f"{contract.title} sends a token in {written(handshake.token)}: set verify_token")
        fields.append((handshake.token, token))
    query = {field.name: text for field, text in fields if isinstance(field, Query)}
    headers = {field.name: text for field, text in fields if isinstance(field, Header)}
    body = _body(handshake, [(field.path, text) for field, text in fields if isinstance(field, Body)])
    if body:
        form = not body.startswith(b"{")
        headers[b"content-type"] = "application/x-www-form-urlencoded" if form else "application/json"
    whole = f"{url}{'&' if '?' in url else '?'}{urlencode(query)}" if query else url
    draft = Draft(url=whole, body=body, headers=headers, method=handshake.method, now=now, id=value)
    return HandshakeRequest(handshake, draft, value)


def _value(handshake: Handshake, origins: frozenset[str]) -> str:
    if handshake.origins:
        if not origins:
            raise ConfigError("this handshake names its origin, and the source allows none: set origins")
        return min(origins)
    made = [secrets.token_hex(16), str(secrets.randbelow(10**12)), "https://challenge.example.com/"]
    return next((text for text in made if re.fullmatch(handshake.alphabet, text)), made[0])


def _body(handshake: Handshake, fields: list[tuple[tuple[str, ...], str]]) -> bytes:
    if handshake.method != "POST":
        return b""
    content: dict[str, Any] = {}
    for path, text in fields:
        inner = content
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = text
    if handshake.body is None:
        return json.dumps(content, separators=(",", ":")).encode() if content else b""
    form = re.match(r"\w+=", handshake.body)  # a form with one number in it
    ways = [json.dumps(content, separators=(",", ":")), json.dumps(content), f"{form[0]}1" if form else ""]
    return next((text for text in ways if re.fullmatch(handshake.body, text)), ways[0]).encode()
