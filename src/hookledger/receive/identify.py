"""Find the events in an authentic request, and what identifies each of them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from ..errors import NoKey, Rejected, UnreadableError
from ..ids import MAX_TEXT, body_identity, key_identity, new_id, show, token_identity
from ..ids import identity as digest_of
from ..model import MAX_VERSION, Item, Proof, Request
from ..providers.contract import UNKNOWN_TYPE, Contract, TypeFields
from ..providers.fields import Body, Content, Field, exact, found, written
from ..providers.reading import contents, decode
from ..providers.schemes.message import json_text_or_none
from ..providers.schemes.times import PER_SECOND
from ..providers.tolerant import decode_plain
from ..states import KeyOrigin
from .bodies import known_body, known_unreadable_body
from .endpoint import Endpoint
from .schema_check import with_breaks

EARLIEST = 0.0
LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""Times outside this range are errors, and some do not fit into a database."""

_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTED = msgspec.json.Encoder(order="sorted").encode
_NUMBER = re.compile(r"[0-9]{9,16}(\.[0-9]{1,9})?")  # a Unix time written as text; ISO 8601 has other lengths

NOT_ALLOWED = "the source does not accept this event type"
OBSERVED = 'the source only observes: mode = "observe"'


def identify(endpoint: Endpoint, request: Request, _proof: Proof, now: float) -> tuple[Item, ...]:
    """Return the events in a request; no body content makes it fail.

    Raises NoKey if the source requires a key and an event has none, Rejected (`type_rejected`) if it rejects every
    type in the request, and ContentRefused if it refuses the content of every event. An empty array of events gives
    no items. The proof is not read: the parameter makes it a type error to identify before verifying.
    """
    contract, raw = endpoint.contract, request.body
    if endpoint.outline is not None:
        try:
            content = endpoint.outline(raw)
        except (msgspec.MsgspecError, ValueError):
            pass  # unusual: read all of it
        else:
            return _allowed(endpoint, [_whole(endpoint, request, now, content, _fingerprint(endpoint, request))])
    try:
        found = contents(contract, decode(contract, raw))
    except UnreadableError as problem:
        unreadable = _item(endpoint, request, now, {}, _digest(endpoint, request), invalid=str(problem))
        return tuple(with_breaks(endpoint, [unreadable], [None], raw))
    if contract.items is None:
        whole = _whole(endpoint, request, now, found[0], _fingerprint(endpoint, request))
        return _allowed(endpoint, with_breaks(endpoint, [whole], found, raw))
    digest = sha256(raw).digest()
    items = [_part(endpoint, request, now, part, digest, number) for number, part in enumerate(found)]
    return _allowed(endpoint, with_breaks(endpoint, items, found, raw))


def _whole(endpoint: Endpoint, request: Request, now: float, content: object, fingerprint: bytes) -> Item:
    if not isinstance(content, dict):
        return _item(endpoint, request, now, {}, fingerprint, invalid="not an object")
    return _item(endpoint, request, now, content, fingerprint)


def _part(endpoint: Endpoint, request: Request, now: float, content: object, digest: bytes, index: int) -> Item:
    """Return one of several events. Without usable content, body and index identify it."""
    place = sha256(digest + b"#%d" % index).digest()
    if not isinstance(content, dict):  # must not reject the others
        return _item(endpoint, request, now, {}, place, invalid="not an object", demanded=False, whole=False)
    found = _part_fingerprint(endpoint.contract, content) or place
    return _item(endpoint, request, now, content, found, whole=False)


def _allowed(endpoint: Endpoint, items: list[Item]) -> tuple[Item, ...]:
    """Return the items; raise Rejected if the source accepts no type among them. Otherwise items of other types are
    recorded as skipped."""
    if endpoint.settings.other_types == "reject" and items and all(item.skip == NOT_ALLOWED for item in items):
        raise Rejected("type_rejected")
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
    whole: bool = True,
) -> Item:
    contract = endpoint.contract
    kind, first = _type(contract, request, content)
    delivery_id = _text(contract.delivery_id, request, content)
    backed = endpoint.backed
    parts: list[bytes] | None = None
    try:
        parts = _key(endpoint, request, content)
    except Exception as error:  # from the user's function: the event is authentic and must be recorded
        invalid = invalid or f"the source's key function raised {type(error).__name__}"
    origin, trusted = endpoint.key_origin, endpoint.key_signed
    if parts is None and endpoint.key_function is not None and contract.scheme.coverage == "fields":
        # The content is not signed, so no key can be made from it; the provider's key fields are signed.
        parts, origin, trusted = _values(endpoint.key_fields, request, content), KeyOrigin.COMPOSITE, True

    if invalid is None:
        known = known_body(endpoint, request, content, kind, first)
    else:
        known = known_unreadable_body(endpoint, kind, first)
    # For an unreadable body, its signed bytes make a better key than an unsigned id.
    trusted = trusted or invalid is None or endpoint.settings.key_required
    by_id = False
    if parts is not None and trusted:
        by_id = endpoint.key_is_id
        key = show(parts[0] if len(parts) == 1 else b":".join(parts))
        identity = key_identity(endpoint.name, *parts)
    elif demanded and endpoint.key_demanded:
        raise NoKey("key_missing")
    elif contract.hint or known.repeats:
        arrival = new_id()
        key, identity, origin = f"arrival:{arrival}", key_identity(endpoint.name, arrival.bytes), KeyOrigin.ARRIVAL
    else:
        digest = _named_digest(contract, request, content) or fingerprint
        key, origin = f"sha256:{digest.hex()}", KeyOrigin.DIGEST
        more: tuple[bytes, ...] = ()
        backed = backed or endpoint.type_unsigned  # the type is part of this identity
        if endpoint.delivered_once:
            backed = True  # even without the id: it is not signed, so an attacker can remove it
            more = () if delivery_id is None else (delivery_id.encode(),)
        identity = digest_of(endpoint.name, b"digest", kind.encode(), digest, *more)

    by_body = by_type = alert = None
    if backed:
        by_body, alert = body_identity(endpoint.name, fingerprint), known.alert
        by_type = body_identity(endpoint.name, fingerprint, kind) if known.once else None
    tokens: tuple[bytes, ...] = ()
    if contract.tokens:
        tokens = tuple([token_identity(endpoint.name, token) for token in _tokens(contract, request, content)])
        alert = "its signed token was delivered with another key or other content, which may be forged"
    of_type = contract.fields_of.get(first)
    occurred_at = _time(contract, of_type, request, content)
    item = Item(
        key=key,
        key_origin=origin,
        identity=identity,
        fingerprint=fingerprint,
        type=kind,
        body_identity=by_body,
        provider_id=key if by_id else _text(contract.id, request, content),
        object_id=_object(contract, of_type, request, content),
        occurred_at=occurred_at,
        delivery_id=delivery_id,
        invalid=invalid,
        skip=None if invalid is not None else _skip(endpoint, kind),
        review=_review(endpoint, occurred_at, now),
        type_identity=by_type,
        body_group=known.group if backed else b"",
        token_identities=tokens,
        repeats=known.repeats,
        whole=whole,
        alert=alert,
        account=_first(contract.account, request, content) if contract.account else None,
        retry=_retry(contract, request, content) if contract.retry else None,
        version=_version(endpoint.version, request, content) if endpoint.version is not None else "",
    )
    rule = endpoint.entities
    if rule is None:
        return item
    return rule.applied(item, _first(rule.fields, request, content) if rule.fields else item.object_id)


def _skip(endpoint: Endpoint, kind: str) -> str | None:
    if not endpoint.allows(kind):
        return NOT_ALLOWED
    return OBSERVED if endpoint.settings.mode == "observe" else None


def _review(endpoint: Endpoint, occurred_at: float | None, now: float) -> str | None:
    """Return why it needs a review: beyond the horizon its identity may have been deleted, so it may not be new."""
    horizon = endpoint.settings.horizon
    if horizon is None or (occurred_at is not None and occurred_at >= now - horizon):
        return None
    when = "of unknown age, with a" if occurred_at is None else "older than the source's"
    return f"{when} horizon of {horizon / 86400:g} days: it may be a duplicate of a deleted event"


# ── keys and digests ─────────────────────────────────────────────────────────


def _key(endpoint: Endpoint, request: Request, content: Content) -> list[bytes] | None:
    """Return the exact bytes of the event key, in parts; None if a part is missing."""
    if endpoint.key_function is not None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers[::-1]}
        made = endpoint.key_function(content, headers)
        made = made if isinstance(made, tuple) else (made,)
        for part in made:
            if part is not None and (isinstance(part, bool) or not isinstance(part, str | int | bytes)):
                raise TypeError(f"a key must be text, a number or a tuple of them, not {type(part).__name__}")
        return _complete([exact(part) for part in made])
    return _values(endpoint.key_fields, request, content)


def _values(fields: tuple[Field, ...], request: Request, content: Content) -> list[bytes] | None:
    if len(fields) == 1:  # as most keys are
        value = _value(fields[0], request, content)
        return None if value is None else [value]
    return _complete([_value(field, request, content) for field in fields])


def _tokens(contract: Contract, request: Request, content: Content) -> list[bytes]:
    """Return the signed tokens; if the content is unreadable, those that verification read."""
    tokens = []
    for field in contract.tokens:
        token = _value(field, request, content)
        if token is None and isinstance(field, Body):
            with suppress(Rejected):
                token = json_text_or_none(request.body, field.path)
        if token is not None:  # the provider's API lists events without it
            tokens.append(token)
    return tokens


def _complete(values: list[bytes | None]) -> list[bytes] | None:
    parts = [value for value in values if value is not None]
    return parts if parts and len(parts) == len(values) else None


def _named_digest(contract: Contract, request: Request, content: Content) -> bytes | None:
    """Return a digest of the fields that the contract calls immutable; None without such fields, or if the first is
    missing: it names the object, and the others alone could match any object."""
    values = [(written(field), _value(field, request, content)) for field in contract.immutable]
    if not values or values[0][1] is None:
        return None
    named = [name.encode() + b"\0" + value for name, value in values if value is not None]
    return digest_of("", b"fields", *named)


def _digest(endpoint: Endpoint, request: Request) -> bytes:
    """Return the digest of a whole body; of a signed form, only of the part that is signed."""
    signed = None
    if endpoint.canonical is not None:
        with suppress(Rejected):  # it was verified, so it is readable; if not, its bytes are used
            signed = endpoint.canonical(request)
    return sha256(request.body if signed is None else signed).digest()


def _fingerprint(endpoint: Endpoint, request: Request) -> bytes:
    """Return the digest of a whole body without its volatile fields.

    If all volatile fields are at the top level, nothing below is parsed: the digest covers the bytes of each
    top-level field, in sorted order.
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
                value = decode_plain(parts[name])
                if isinstance(value, dict):
                    value = _without(value, path[1:])
                parts[name] = msgspec.Raw(_SORTED(value))
        return sha256(_SORTED(parts)).digest()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return sha256(raw).digest()


def _part_fingerprint(contract: Contract, content: Content) -> bytes | None:
    """Return the digest of one of several events without its volatile fields; None if it cannot be serialized."""
    try:
        for field in contract.volatile:
            content = _without(content, field.path)
        # Sorted, so that the same fields in another order are no conflict.
        return sha256(_SORTED(content)).digest()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _without(content: Content, path: tuple[str, ...]) -> Content:
    """Return a copy without one field; it shares unchanged values with the original."""
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
        return given  # most are clean
    value = exact(given)
    return None if value is None else show(value)


def _version(field: Field, request: Request, content: Content) -> str:
    """Return the event's version, cut to what is stored; empty without one."""
    return (_text(field, request, content) or "")[:MAX_VERSION].strip()


def _type(contract: Contract, request: Request, content: Content) -> tuple[str, str]:
    """Return the event type, and the value of its first field."""
    if len(contract.type) == 1:  # as most types are
        name = _text(contract.type[0], request, content) or UNKNOWN_TYPE
        return name, name
    values = [_value(field, request, content) for field in contract.type]
    if not values or values[0] is None:
        return UNKNOWN_TYPE, UNKNOWN_TYPE
    if contract.type_names:
        values[0] = contract.named_types.get(values[0], values[0])
    first = show(values[0])
    return show(b".".join([value for value in values if value is not None])), first


def _object(contract: Contract, of_type: TypeFields | None, request: Request, content: Content) -> str | None:
    parts = None if of_type is None else _complete([_value(field, request, content) for field in of_type.object_id])
    return _first(contract.object_id, request, content) if parts is None else show(b":".join(parts))


def _retry(contract: Contract, request: Request, content: Content) -> str | None:
    """Return the retry's number and reason, such as `2 http_timeout`; None for a first attempt."""
    values = [_value(field, request, content) for field in contract.retry]
    return None if values[0] is None else show(b" ".join([value for value in values if value is not None]))


def _time(contract: Contract, of_type: TypeFields | None, request: Request, content: Content) -> float | None:
    own = () if contract.occurred_at is None else (contract.occurred_at, *contract.occurred_else)
    for field in own if of_type is None or not of_type.occurred_at else of_type.occurred_at:
        seconds = _moment(contract, found(field, request, content))
        if seconds is not None:
            return seconds
    return None


def _moment(contract: Contract, value: object) -> float | None:
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    try:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            # Whole microseconds, which all databases store alike: a first attempt has the time that later ones read.
            seconds = round(float(value) / PER_SECOND[contract.occurred_unit], 6)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return seconds if EARLIEST <= seconds < LATEST else None  # NaN is in no range
