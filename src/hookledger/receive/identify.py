"""Which events are in an authentic request, and what makes each of them the same event as another."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

import msgspec

from ..errors import NoKey, Rejected
from ..model import Item, Proof, Request, key_identity
from ..model import identity as digest_of
from ..providers.contract import UNKNOWN_TYPE, Body, Contract, Field, UnreadableError, contents, decode
from ..states import KeyOrigin
from .endpoint import Endpoint

MAX_TEXT = 255
EARLIEST = 0.0
LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""Times outside are mistakes, and some of them no database can hold."""

# PostgreSQL's text takes neither NUL nor lone surrogates; other controls would let a key draw on a terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Headers = dict[bytes, bytes]
_Content = dict[str, object]


def identify(endpoint: Endpoint, request: Request, _proof: Proof) -> tuple[Item, ...]:
    """The events in a request; nothing that a body can contain makes it fail.

    Raises NoKey where the source demands a key and an event has none, and Rejected (`type_refused`) where it
    refuses every type in the request. An empty array of events gives no items. The proof is not read: asking
    for it makes identifying before verifying a type error.
    """
    contract, raw = endpoint.contract, request.body
    headers = dict(request.headers[::-1])  # the first of several values counts
    if endpoint.outline is not None:
        try:
            content = endpoint.outline(raw)
        except (msgspec.MsgspecError, ValueError):
            pass  # odd: read all of it
        else:
            return _allowed(endpoint, [_item(endpoint, headers, content, _fingerprint(contract, raw))])
    try:
        found = contents(contract, decode(contract, raw))
    except UnreadableError as problem:
        return (_item(endpoint, headers, {}, _digest(raw, None), invalid=str(problem)),)

    items: list[Item] = []
    for number, part in enumerate(found):
        index = None if contract.items is None else number
        if not isinstance(part, dict):
            items.append(_item(endpoint, headers, {}, _digest(raw, index), invalid="not an object"))
        elif index is None:
            items.append(_item(endpoint, headers, part, _fingerprint(contract, raw)))
        else:
            items.append(_item(endpoint, headers, part, _part_fingerprint(contract, part, raw, index)))
    return _allowed(endpoint, items)


def _allowed(endpoint: Endpoint, items: list[Item]) -> tuple[Item, ...]:
    """One event of an allowed type is reason enough to take the request in; the others are then skipped."""
    if endpoint.other_types == "refuse" and items and all(item.skip is not None for item in items):
        raise Rejected("type_refused")
    return tuple(items)


def _item(
    endpoint: Endpoint,
    headers: _Headers,
    content: _Content,
    fingerprint: bytes,
    *,
    invalid: str | None = None,
) -> Item:
    contract = endpoint.contract
    kind, first = _type(contract, headers, content)
    values = [_value(field, headers, content) for field in contract.key_fields]
    parts = [value for value in values if value is not None]
    signed = endpoint.key_signed

    # For what cannot be read, the bytes make a better key than an unsigned id: nobody can change them.
    trusted = signed or invalid is None or endpoint.key_required
    if values and len(parts) == len(values) and trusted:
        key, identity = _show(b":".join(parts)), key_identity(endpoint.name, *parts)
        origin = KeyOrigin.SIGNED_ID if signed else KeyOrigin.UNSIGNED_ID
        if len(parts) > 1:
            origin = KeyOrigin.COMPOSITE
    elif endpoint.key_required:
        raise NoKey("key_missing")
    else:
        key, origin = f"sha256:{fingerprint.hex()}", KeyOrigin.DIGEST
        identity = digest_of(endpoint.name, b"digest", kind.encode(), fingerprint)

    body_identity = None
    if values and not signed and first not in contract.repeatable:
        body_identity = digest_of(endpoint.name, b"body", kind.encode(), fingerprint)

    return Item(
        key=key,
        key_origin=origin,
        identity=identity,
        fingerprint=fingerprint,
        type=kind,
        body_identity=body_identity,
        provider_id=_text(contract.id, headers, content),
        object_id=_first(contract.object_id, headers, content),
        occurred_at=_time(contract, headers, content),
        delivery_id=_text(contract.delivery_id, headers, content),
        invalid=invalid,
        skip=None if invalid is not None or endpoint.allows(kind) else "type not allowed by the source",
    )


# ── keys and digests ─────────────────────────────────────────────────────────


def _digest(raw: bytes, index: int | None) -> bytes:
    """Of a whole body, or of the place of one item in it."""
    digest = hashlib.sha256(raw).digest()
    return digest if index is None else hashlib.sha256(digest + b"#%d" % index).digest()


def _fingerprint(contract: Contract, raw: bytes) -> bytes:
    """Digest of a whole body less what is volatile.

    Where all that is volatile stands at the top, the rest is not read: each field at the top goes in with its
    own bytes, in sorted order.
    """
    if not contract.volatile:
        return hashlib.sha256(raw).digest()
    try:
        parts = _TOP.decode(raw)
        for field in contract.volatile:
            name, *inner = field.path
            if not inner:
                parts.pop(name, None)
            elif name in parts:
                value = msgspec.json.decode(parts[name])
                if isinstance(value, dict):
                    value = _without(value, tuple(inner))
                parts[name] = msgspec.Raw(msgspec.json.encode(value, order="sorted"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return hashlib.sha256(raw).digest()
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).digest()


def _part_fingerprint(contract: Contract, content: _Content, raw: bytes, index: int) -> bytes:
    """Digest of one of several events less what is volatile."""
    try:
        for field in contract.volatile:
            content = _without(content, field.path)
        # Sorted, so that a provider which renders the same fields in another order makes no conflict.
        return hashlib.sha256(msgspec.json.encode(content, order="sorted")).digest()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _digest(raw, index)


def _without(content: _Content, path: tuple[str, ...]) -> _Content:
    """A copy less one field; what it does not touch is shared."""
    name, *rest = path
    if name not in content:
        return content
    copy = dict(content)
    inner = copy.pop(name)
    if rest:
        copy[name] = _without(inner, tuple(rest)) if isinstance(inner, dict) else inner
    return copy


# ── fields ───────────────────────────────────────────────────────────────────


def _found(field: Field, headers: _Headers, content: _Content) -> object:
    if not isinstance(field, Body):
        return headers.get(field.name)
    found: object = content
    for name in field.path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def _value(field: Field, headers: _Headers, content: _Content) -> bytes | None:
    """A field's exact bytes; an id that is neither text nor an integer, or is blank, is none."""
    found = _found(field, headers, content)
    if isinstance(found, str):
        found = found.encode("utf-8", "surrogatepass")
    elif isinstance(found, int) and not isinstance(found, bool):
        found = b"%d" % found
    return found if isinstance(found, bytes) and found.strip() else None


def _first(fields: tuple[Field, ...], headers: _Headers, content: _Content) -> str | None:
    for field in fields:
        text = _text(field, headers, content)
        if text is not None:
            return text
    return None


def _text(field: Field | None, headers: _Headers, content: _Content) -> str | None:
    value = None if field is None else _value(field, headers, content)
    return None if value is None else _show(value)


def _type(contract: Contract, headers: _Headers, content: _Content) -> tuple[str, str]:
    """The type, and the part of it that its first field gives."""
    values = [_value(field, headers, content) for field in contract.type]
    if not values or values[0] is None:
        return UNKNOWN_TYPE, UNKNOWN_TYPE
    first = _show(values[0])
    if len(values) == 1:
        return first, first
    return _show(b".".join([value for value in values if value is not None])), first


def _time(contract: Contract, headers: _Headers, content: _Content) -> float | None:
    found = None if contract.occurred_at is None else _found(contract.occurred_at, headers, content)
    if isinstance(found, bytes):
        found = found.decode("ascii", "replace")
    try:
        if isinstance(found, str):
            moment = datetime.fromisoformat(found)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        elif isinstance(found, (int, float)) and not isinstance(found, bool):
            seconds = float(found) / (1000 if contract.occurred_unit == "ms" else 1)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return seconds if EARLIEST <= seconds < LATEST else None  # NaN is in no range


def _show(value: bytes) -> str:
    """Text that a database, a log and a screen can hold; a digest stands for what was cut off."""
    text = value.decode("utf-8", "replace")
    if not (text.isascii() and text.isprintable()):
        text = _UNPRINTABLE.sub("\ufffd", text)
    if len(text) > MAX_TEXT:
        tail = f"…sha256:{hashlib.sha256(value).hexdigest()}"
        text = text[: MAX_TEXT - len(tail)] + tail
    return text
