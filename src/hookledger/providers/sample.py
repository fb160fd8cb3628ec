"""A made-up event that fits a contract, to try a source with."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from ..identities import new_id
from .contract import Contract
from .fields import Body, Field, Present
from .schemes.adyen import AdyenItems
from .schemes.times import PER_SECOND


class Sample(Struct, frozen=True):
    id: str
    type: str
    body: bytes


def sample(contract: Contract, kind: str | None = None, ident: str | None = None) -> Sample:
    """Every field that the contract reads, filled with something that looks made up."""
    ident = ident or f"test_{new_id().hex}"
    kind = kind or "test.event"
    content: dict[str, Any] = {}
    for field, part in zip(contract.type, _kinds(contract, kind), strict=False):
        _put(content, field, part)
    _put(content, contract.id, ident)
    for field in (*contract.key, *contract.immutable):
        _put(content, field, ident)
    if contract.object_id:
        _put(content, contract.object_id[0], f"obj_{ident}")
    _put(content, contract.occurred_at, int(time.time() * PER_SECOND[contract.occurred_unit]))
    content.setdefault("note", f"made by hookledger send at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    return Sample(ident, kind, _written(contract, _wrapped(contract, content)))


def _kinds(contract: Contract, kind: str) -> list[str]:
    head, _, rest = kind.partition(".")
    return [head, rest] if len(contract.type) > 1 else [kind]


def _wrapped(contract: Contract, content: dict[str, Any]) -> Any:
    """The content where the contract looks for events."""
    if contract.items is None:
        return content
    way = contract.items[0]
    # Adyen wraps each item of its array into an object of its own.
    whole: Any = content if isinstance(contract.scheme, AdyenItems) else [content]
    for number, name in enumerate(reversed(way)):
        whole = {name: whole} if number == 0 else {name: [whole]}
    return whole


def _written(contract: Contract, whole: Any) -> bytes:
    match contract.content:
        case "json":
            return msgspec.json.encode(whole)
        case "form":
            return urlencode({name: _flat(value) for name, value in whole.items()}).encode()
        case "braintree":
            text = f"<notification>{_xml(whole)}</notification>"
            return b"bt_payload=" + quote(base64.b64encode(text.encode()), safe="").encode()


def _flat(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _xml(content: dict[str, Any]) -> str:
    return "".join(f"<{name}>{_xml(v) if isinstance(v, dict) else v}</{name}>" for name, v in content.items())


def _put(content: dict[str, Any], field: Field | None, value: Any) -> None:
    if isinstance(field, Present):
        content.setdefault(field.names[0], {})
    if not isinstance(field, Body) or not value:
        return
    *outer, last = field.path
    for name in outer:
        content = content.setdefault(name, {})
    content.setdefault(last, value)


