"""What the examples of deliveries are written in."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from hookledger.providers.contract import Contract


class Example(Struct, frozen=True, kw_only=True):
    """One delivery of a provider, and what must be found in it."""

    contract: str
    body: bytes | dict[str, Any] | list[Any]
    """A dict is written as the contract has it: as JSON, as a form, or as Braintree's XML."""
    headers: dict[str, str] = {}
    query: str = ""
    secret: str
    url: str = "https://hooks.example.com/NAME"
    expects: list[dict[str, Any]]
    """For each event, of: type, key, key_origin, object_id, provider_id, delivery_id, occurred_at, invalid."""


def written(contract: Contract, body: bytes | dict[str, Any] | list[Any]) -> bytes:
    """The body as the provider sends it, less what the signature adds."""
    if isinstance(body, bytes):
        return body
    if contract.content == "form" and isinstance(body, dict):
        return urlencode(body).encode()
    if contract.content == "braintree" and isinstance(body, dict):
        text = f"<notification>{_xml(body)}</notification>"
        return b"bt_payload=" + quote(base64.encodebytes(text.encode()), safe="").encode()
    raw = json.dumps(body).encode()
    return raw if contract.form_field is None else f"{contract.form_field}={quote(raw)}".encode()


def _xml(content: dict[str, Any]) -> str:
    return "".join(f"<{name}>{_xml(v) if isinstance(v, dict) else v}</{name}>" for name, v in content.items())
