"""Which events are in an authentic request, and what makes each of them the same event as another."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from ..errors import NoKey, Rejected
from ..identities import identity as digest_of
from ..identities import key_identity, new_id
from ..model import Item, Proof, Request
from ..providers.contract import UNKNOWN_TYPE, Contract
from ..providers.fields import Content, Field, exact, found, written
from ..providers.reading import contents, decode
from ..providers.schemes.times import PER_SECOND
from ..providers.tolerant import UnreadableError
from ..states import KeyOrigin
from .endpoint import Endpoint

MAX_TEXT = 255
EARLIEST = 0.0
LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""Times outside are mistakes, and some of them no database can hold."""

# PostgreSQL's text takes neither NUL nor lone surrogates; other controls would let a key draw on a terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTED = msgspec.json.Encoder(order="sorted").encode
_NUMBER = re.compile(r"[0-9]{9,16}(\.[0-9]{1,9})?")  # a Unix time written as text; ISO 8601 has other lengths

NOT_ALLOWED = "type not allowed by the source"
OBSERVED = "observed: the source runs nothing yet"


def identify(endpoint: Endpoint, request: Request, _proof: Proof, now: float) -> tuple[Item, ...]:
    """The events in a request; nothing that a body can contain makes it fail.

    Raises NoKey where the source demands a key and an event has none, and Rejected (`type_refused`) where it
    refuses every type in the request. An empty array of events gives no items. The proof is not read: asking
    for it makes identifying before verifying a type error.
    """
    contract, raw = endpoint.contract, request.body
    if endpoint.outline is not None:
        try:
            content = endpoint.outline(raw)
        except (msgspec.MsgspecError, ValueError):
            pass  # odd: read all of it
        else:
            return _allowed(endpoint, [_item(endpoint, request, now, content, _fingerprint(endpoint, request))])
    try:
        found = contents(contract, decode(contract, raw))
    except UnreadableError as problem:
        return (_item(endpoint, request, now, {}, _digest(endpoint, request), invalid=str(problem)),)
    if contract.items is None:
        return _allowed(endpoint, [_whole(endpoint, request, now, found[0], _fingerprint(endpoint, request))])
    digest = sha256(raw).digest()
    items = [_part(endpoint, request, now, part, digest, number) for number, part in enumerate(found)]
    return _allowed(endpoint, items)


def _whole(endpoint: Endpoint, request: Request, now: float, content: object, fingerprint: bytes) -> Item:
    if not isinstance(content, dict):
        return _item(endpoint, request, now, {}, fingerprint, invalid="not an object")
    return _item(endpoint, request, now, content, fingerprint)


def _part(endpoint: Endpoint, request: Request, now: float, content: object, digest: bytes, index: int) -> Item:
    """One of several events. What has no content to be known by is known by the body and its place there."""
    place = sha256(digest + b"#%d" % index).digest()
    if not isinstance(content, dict):  # never a reason to refuse the others
        return _item(endpoint, request, now, {}, place, invalid="not an object", demanded=False)
    return _item(endpoint, request, now, content, _part_fingerprint(endpoint.contract, content) or place)


def _allowed(endpoint: Endpoint, items: list[Item]) -> tuple[Item, ...]:
    """One event of an allowed type is reason enough to take the request in; the others are then skipped."""
    if endpoint.rules.other_types == "refuse" and items and all(item.skip == NOT_ALLOWED for item in items):
        raise Rejected("type_refused")
    return tuple(items)


def _item(
    endpoint: Endpoint,
    request: Request,
    now: float,
    content: Content,
    fingerprint: bytes,
    *,
    invalid: str | None = None,
    demanded: bool = True,
) -> Item:
    contract = endpoint.contract
    kind, first = _type(contract, request, content)
    delivery_id = _text(contract.delivery_id, request, content)
    backed = endpoint.backed
    parts: list[bytes] | None = None
    try:
        parts = _key(endpoint, request, content)
    except Exception as error:  # the user's function: whatever it raises, the event is authentic and must be kept
        invalid = invalid or f"the source's key function raised {type(error).__name__}"
    origin, trusted = endpoint.key_origin, endpoint.key_signed
    if parts is None and endpoint.key_function is not None and contract.scheme.coverage == "fields":
        # The content is not signed, so it cannot stand for a key; the provider's own key is, and can.
        parts, origin, trusted = _values(endpoint.key_fields, request, content), KeyOrigin.COMPOSITE, True

    # For what cannot be read, the bytes make a better key than an unsigned id: nobody can change them.
    trusted = trusted or invalid is None or endpoint.rules.key_required
    by_id = False
    if parts is not None and trusted:
        by_id = endpoint.key_is_id
        key = show(parts[0] if len(parts) == 1 else b":".join(parts))
        identity = key_identity(endpoint.name, *parts)
    elif demanded and endpoint.key_demanded:
        raise NoKey("key_missing")
    elif contract.hint or (first in endpoint.repeatable and invalid is None):
        arrival = new_id()
        key, identity, origin = f"arrival:{arrival}", key_identity(endpoint.name, arrival.bytes), KeyOrigin.ARRIVAL
    else:
        digest = _named_digest(contract, request, content) or fingerprint
        key, origin = f"sha256:{digest.hex()}", KeyOrigin.DIGEST
        more: tuple[bytes, ...] = ()
        if endpoint.delivered_once:
            backed = True  # also without the id: it is not signed, so anybody can leave it out
            more = () if delivery_id is None else (delivery_id.encode(),)
        identity = digest_of(endpoint.name, b"digest", kind.encode(), digest, *more)

    body_identity = None
    if backed and first not in endpoint.repeatable:
        # The type goes in where the body does not give it: one body under two topics is two events.
        body_identity = digest_of(endpoint.name, b"body", kind.encode() if endpoint.type_apart else b"", fingerprint)
    occurred_at = _time(contract, request, content)
    return Item(
        key=key,
        key_origin=origin,
        identity=identity,
        fingerprint=fingerprint,
        type=kind,
        body_identity=body_identity,
        provider_id=key if by_id else _text(contract.id, request, content),
        object_id=_first(contract.object_id, request, content),
        occurred_at=occurred_at,
        delivery_id=delivery_id,
        invalid=invalid,
        skip=None if invalid is not None else _skip(endpoint, kind),
        review=_review(endpoint, occurred_at, now),
    )


def _skip(endpoint: Endpoint, kind: str) -> str | None:
    if not endpoint.allows(kind):
        return NOT_ALLOWED
    return OBSERVED if endpoint.rules.mode == "observe" else None


def _review(endpoint: Endpoint, occurred_at: float | None, now: float) -> str | None:
    """Beyond the horizon its identity may have been forgotten, so nobody knows whether it is new."""
    horizon = endpoint.rules.horizon
    if horizon is None or (occurred_at is not None and occurred_at >= now - horizon):
        return None
    when = "of unknown age, with a" if occurred_at is None else "older than the source's"
    return f"{when} horizon of {horizon / 86400:g} days: it may have been here before"


# ── keys and digests ─────────────────────────────────────────────────────────


def _key(endpoint: Endpoint, request: Request, content: Content) -> list[bytes] | None:
    """The exact bytes of the event key, in parts; None if a part of it is missing."""
    if endpoint.key_function is not None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers[::-1]}
        made = endpoint.key_function(content, headers)
        made = made if isinstance(made, tuple) else (made,)
        for part in made:
            if part is not None and (isinstance(part, bool) or not isinstance(part, str | int | bytes)):
                raise TypeError(f"a key is text, a number, or a tuple of them, not {type(part).__name__}")
        return _complete([exact(part) for part in made])
    return _values(endpoint.key_fields, request, content)


def _values(fields: tuple[Field, ...], request: Request, content: Content) -> list[bytes] | None:
    if len(fields) == 1:  # as most keys are
        value = _value(fields[0], request, content)
        return None if value is None else [value]
    return _complete([_value(field, request, content) for field in fields])


def _complete(values: list[bytes | None]) -> list[bytes] | None:
    parts = [value for value in values if value is not None]
    return parts if parts and len(parts) == len(values) else None


def _named_digest(contract: Contract, request: Request, content: Content) -> bytes | None:
    """Digest of the fields that the contract calls immutable; None if it names none, or lacks the first: what the
    others say of a thing that is not named would be said of any."""
    values = [(written(field), _value(field, request, content)) for field in contract.immutable]
    if not values or values[0][1] is None:
        return None
    named = [name.encode() + b"\0" + value for name, value in values if value is not None]
    return digest_of("", b"fields", *named)


def _digest(endpoint: Endpoint, request: Request) -> bytes:
    """Of a whole body. Where a form is signed, whatever the signature does not see makes no difference."""
    signed = None
    if endpoint.canonical is not None:
        with suppress(Rejected):  # it was verified, so it can be read; if not, its bytes will do
            signed = endpoint.canonical(request)
    return sha256(request.body if signed is None else signed).digest()


def _fingerprint(endpoint: Endpoint, request: Request) -> bytes:
    """Digest of a whole body less what is volatile.

    Where all that is volatile stands at the top, the rest is not read: each field at the top goes in with its
    own bytes, in sorted order.
    """
    volatile, raw = endpoint.contract.volatile, request.body
    if not volatile:
        return _digest(endpoint, request)
    try:
        parts = _TOP.decode(raw)
        for field in volatile:
            path = field.path
            name = path[0]
            if len(path) == 1:
                parts.pop(name, None)
            elif name in parts:
                value = msgspec.json.decode(parts[name])
                if isinstance(value, dict):
                    value = _without(value, path[1:])
                parts[name] = msgspec.Raw(_SORTED(value))
        return sha256(_SORTED(parts)).digest()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return sha256(raw).digest()


def _part_fingerprint(contract: Contract, content: Content) -> bytes | None:
    """Digest of one of several events less what is volatile; None if it cannot be written again."""
    try:
        for field in contract.volatile:
            content = _without(content, field.path)
        # Sorted, so that a provider which renders the same fields in another order makes no conflict.
        return sha256(_SORTED(content)).digest()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _without(content: Content, path: tuple[str, ...]) -> Content:
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


def _value(field: Field, request: Request, content: Content) -> bytes | None:
    return exact(found(field, request, content))


def _first(fields: tuple[Field, ...], request: Request, content: Content) -> str | None:
    for field in fields:
        text = _text(field, request, content)
        if text is not None:
            return text
    return None


def _text(field: Field | None, request: Request, content: Content) -> str | None:
    if field is None:
        return None
    given = found(field, request, content)
    if type(given) is str and given.isascii() and given.isprintable() and len(given) <= MAX_TEXT and given.strip():
        return given  # as nearly all are: nothing to clean
    value = exact(given)
    return None if value is None else show(value)


def _type(contract: Contract, request: Request, content: Content) -> tuple[str, str]:
    """The type, and the part of it that its first field gives."""
    if len(contract.type) == 1:  # as most types are
        name = _text(contract.type[0], request, content) or UNKNOWN_TYPE
        return name, name
    values = [_value(field, request, content) for field in contract.type]
    if not values or values[0] is None:
        return UNKNOWN_TYPE, UNKNOWN_TYPE
    first = show(values[0])
    return show(b".".join([value for value in values if value is not None])), first


def _time(contract: Contract, request: Request, content: Content) -> float | None:
    if contract.occurred_at is None:
        return None
    value = found(contract.occurred_at, request, content)
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    try:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = float(value) / PER_SECOND[contract.occurred_unit]
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return seconds if EARLIEST <= seconds < LATEST else None  # NaN is in no range


def show(value: bytes) -> str:
    """Text that a database, a log and a screen can hold; a digest stands for what was cut off."""
    text = value.decode("utf-8", "replace")
    if not (text.isascii() and text.isprintable()):
        text = _UNPRINTABLE.sub("\ufffd", text)
    if len(text) > MAX_TEXT:
        tail = f"…sha256:{sha256(value).hexdigest()}"
        text = text[: MAX_TEXT - len(tail)] + tail
    return text
