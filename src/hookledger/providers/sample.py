"""Make a test event for a source: a sample like the provider's own, or a body with the fields of the contract."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from ..ids import new_id
from . import changes
from .changes import Change
from .contract import Contract
from .fields import Body, Field, Present
from .placeholders import fill, moment
from .schemes.adyen import AdyenItems
from .schemes.times import PER_SECOND

SAME_BODIES = {
    "azure_event_grid_entra": "azure_event_grid",
    "chargebee_key": "chargebee",
    "gitlab_signed": "gitlab",
    "hubspot_v1": "hubspot",
    "hubspot_v2": "hubspot",
    "jira_app": "jira",
}
"""Contracts that differ in how a request is verified, not in its body."""
NO_TYPE = "test.event"
"""The default type of a provider without samples."""


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """A sample's file in `samples/`; every text may have placeholders."""

    type: str
    body: Any
    id: str = "test_{hex}"
    """The form of the event's id: {hex} and {uuid} are a UUIDv7, {number} is its time and three more digits."""
    headers: dict[str, str] = {}
    """Headers besides those of id, type and signature."""
    rank: int = 2
    """0: the default sample; 1: the default for the type's first field."""
    form: bool = False
    """Whether the JSON is in the contract's form field."""


class Sample(Struct, frozen=True):
    id: str
    type: str
    body: bytes
    headers: dict[str, str] = {}
    real: bool = False
    """Whether the body has the form of the provider's own."""
    nearest: str | None = None
    """The most similar type with a sample, if this type has none."""
    added: tuple[str, ...] = ()
    """Fields that a change added."""


def sample(
    contract: Contract, kind: str | None = None, ident: str | None = None, edits: Sequence[Change] = ()
) -> Sample:
    """Return an event of this type, with a new id and the current time, or with the values that `ident` implies.

    Raises ConfigError if a change does not fit.
    """
    known = _find(contract, kind)
    made = new_id()
    form = known.id if known else "test_{hex}"
    ident = ident or form.format(hex=made.hex, uuid=made, number=(made.int >> 80) * 1000 + made.int % 1000)
    at = moment(ident, time.time())
    if known is None:
        kind = kind or NO_TYPE
        content, headers, form_field = _generic(contract, kind, ident, at), dict[str, str](), None
    else:
        kind, content = known.type, fill(known.body, ident, at)
        headers = {name: str(value) for name, value in fill(known.headers, ident, at).items()}
        form_field = contract.form_field if known.form else None
    added = tuple(".".join(edit.path) for edit in edits if not changes.apply(content, edit))
    close = get_close_matches(kind, listed(contract), n=1, cutoff=0.4) if known is None else []
    return Sample(
        id=ident,
        type=kind,
        body=_written(contract, content, form_field),
        headers=headers,
        real=known is not None,
        nearest=close[0] if close else None,
        added=added,
    )


def listed(contract: Contract) -> list[str]:
    """Return the types that have a sample; the first is the default."""
    return [known.type for known in _samples(contract.name)]


@cache
def _samples(name: str) -> list[Known]:
    folder = files(__package__).joinpath("samples", SAME_BODIES.get(name, name))
    if not folder.is_dir():
        return []
    found = [msgspec.json.decode(file.read_bytes(), type=Known) for file in folder.iterdir()]
    return sorted(found, key=lambda known: (known.rank, known.type))


def _find(contract: Contract, kind: str | None) -> Known | None:
    """Return the sample of this type. The first field of a type is enough: `issues` for `issues.opened`."""
    for known in _samples(contract.name):
        if kind in (None, known.type) or (len(contract.type) > 1 and known.type.startswith(f"{kind}.")):
            return known
    return None


# ── without a sample: only the fields that the contract reads ────────────────


def _generic(contract: Contract, kind: str, ident: str, at: float) -> Any:
    """Return a body with every field that the contract reads, with made-up values."""
    content: dict[str, Any] = {}
    values = {name: int(value) if value.isdecimal() else value for value, name in contract.type_names}
    for field, part in zip(contract.type, _kinds(contract, kind), strict=False):
        _put(content, field, values.get(part, part) if field is contract.type[0] else part)
    _put(content, contract.id, ident)
    for field in (*contract.key, *contract.immutable):
        _put(content, field, ident)
    if contract.object_id:
        _put(content, contract.object_id[0], f"obj_{ident}")
    _put(content, contract.occurred_at, int(at * PER_SECOND[contract.occurred_unit]))
    content.setdefault("note", f"made by hookledger send at {datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return _wrapped(contract, content)


def _kinds(contract: Contract, kind: str) -> list[str]:
    head, _, rest = kind.partition(".")
    return [head, rest] if len(contract.type) > 1 else [kind]


def _wrapped(contract: Contract, content: dict[str, Any]) -> Any:
    """Return a body with the content at the path where the contract expects events."""
    if contract.items is None:
        return content
    way = contract.items[0]
    # Adyen wraps each item of its array in an object.
    whole: Any = content if isinstance(contract.scheme, AdyenItems) else [content]
    for number, name in enumerate(reversed(way)):
        whole = {name: whole} if number == 0 else {name: [whole]}
    return whole


def _put(content: dict[str, Any], field: Field | None, value: Any) -> None:
    if isinstance(field, Present):
        content.setdefault(field.names[0], {})
    if not isinstance(field, Body) or not value:
        return
    *outer, last = field.path
    for name in outer:
        content = content.setdefault(name, {})
    content.setdefault(last, value)


# ── in the provider's format ─────────────────────────────────────────────────


def _written(contract: Contract, whole: Any, form_field: str | None) -> bytes:
    match contract.content:
        case "json" if form_field is not None:
            return urlencode({form_field: msgspec.json.encode(whole)}).encode()
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
    parts = {name: _xml(value) if isinstance(value, dict) else escape(str(value)) for name, value in content.items()}
    return "".join(f"<{name}>{text}</{name}>" for name, text in parts.items())
