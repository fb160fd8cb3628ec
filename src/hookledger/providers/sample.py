"""A made-up event that fits a contract, to try a source with."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from ..model import new_id
from .contract import Body, Contract, Field


class Sample(Struct, frozen=True):
    id: str
    type: str
    body: bytes


def sample(contract: Contract, kind: str | None = None, ident: str | None = None) -> Sample:
    """Every field that the contract reads, filled with something that looks made up."""
    ident = ident or f"test_{new_id().hex}"
    kind = kind or "test.event"
    content: dict[str, Any] = {}
    head, _, rest = kind.partition(".")
    parts = [head, rest] if len(contract.type) > 1 else [kind]
    for field, part in zip(contract.type, parts, strict=False):
        _put(content, field, part)
    _put(content, contract.id, ident)
    for field in contract.key:
        _put(content, field, ident)
    if contract.object_id:
        _put(content, contract.object_id[0], f"obj_{ident}")
    moment: float | str = time.time()
    if contract.occurred_unit == "ms":
        moment = moment * 1000
    _put(content, contract.occurred_at, int(moment))
    content.setdefault("note", f"made by hookledger send at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    if contract.items is None:
        return Sample(ident, kind, msgspec.json.encode(content))
    whole: Any = [content]
    for name in reversed(contract.items):
        whole = {name: whole}
    return Sample(ident, kind, msgspec.json.encode(whole))


def _put(content: dict[str, Any], field: Field | None, value: Any) -> None:
    if not isinstance(field, Body) or not value:
        return
    *outer, last = field.path
    for name in outer:
        content = content.setdefault(name, {})
    content.setdefault(last, value)
