"""`hmac`: any provider that signs with an HMAC in a header, described by the source's options."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from .behaviour import Retries
from .contract import Contract
from .fields import body, field
from .schemes.hmac import Hmac
from .schemes.message import fields
from .schemes.times import Timestamp, Unit

NAME = "hmac"


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of provider `hmac`. A field is written `header:NAME` or `body:PATH.TO.FIELD`."""

    header: str
    """The header with the signature."""
    message: str | None = None
    """The signed text, made of {body}, {ts}, {id}, {url}, {method}; default: `{ts}.{body}` with a timestamp,
    otherwise `{body}`."""
    alg: Literal["sha1", "sha256", "sha512"] = "sha256"
    """The hash."""
    encoding: Literal["hex", "base64"] = "hex"
    """Encoding of the signature."""
    prefix: str = ""
    """Text before the signature, such as `sha256=`."""
    separator: str | None = None
    """Separator of several signatures in one header."""
    timestamp_header: str | None = None
    """The header with the signed time."""
    timestamp_prefix: str | None = None
    """Text before the signed time if it is in the signature's header, such as `t=`."""
    timestamp_unit: Unit = "s"
    """Unit of the signed time; `iso` is complete, with seconds and zone: 2027-01-31T09:00:00Z."""
    tolerance: float | None = None
    """Seconds that the signed time may be old; default: 300, plus retry_hours unless signs_each_attempt. The time may
    be ahead of the receiver's clock by as much, at most 300."""
    signs_each_attempt: bool = False
    """Whether the provider signs each attempt again, with the attempt's time; leave it off if unknown."""
    id_header: str | None = None
    """The header whose value is {id} in the signed message."""
    secret_encoding: Literal["utf8", "base64", "hex"] = "utf8"  # noqa: S105
    """Encoding of the key in the secret."""
    secret_prefix: str = ""
    """Prefix removed from the secret before it is decoded."""
    id: str | None = None
    """The field with the event's id."""
    key: list[str] = []
    """The fields that make up the event key; default: the id."""
    immutable: list[str] = []
    """The fields whose digest identifies an event without a key."""
    type: list[str] = []
    """The fields of the event's type, joined by dots."""
    first_types: list[str] = []
    """The types with which an object begins, such as `*.created`: the older of two events with the same version."""
    last_types: list[str] = []
    """The types with which an object ends, such as `*.deleted`: the newer of two events with the same version."""
    object_id: list[str] = []
    """The fields with the id of the event's object; the first one present is used."""
    occurred_at: str | None = None
    """The field with the time of the event."""
    occurred_unit: Literal["s", "ms", "us"] = "s"
    """Unit of that time if it is a number."""
    delivery_id: str | None = None
    """The field with the id of the delivery."""
    volatile: list[str] = []
    """Paths in the body that differ between deliveries of the same event."""
    items: str | None = None
    """The path to the array of events; empty if the body is that array."""
    max_body: int = 1024 * 1024
    """Largest body in bytes."""
    retry_hours: float | None = None
    """How many hours the provider retries a delivery; 0: it does not; none: unknown."""


def contract(options: Mapping[str, object]) -> Contract:
    """Return the contract that the options describe."""
    known = [field.name for field in msgspec.structs.fields(Options)]
    for name in options:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the known options are {', '.join(known)}"
            raise ConfigError(f"provider {NAME!r} has no option {name!r}: {hint}")
    if "header" not in options:
        raise ConfigError(f"provider {NAME!r} needs option 'header': the name of the header with the signature")
    try:
        given = msgspec.convert(dict(options), Options)
    except msgspec.ValidationError as error:
        raise ConfigError(f"provider {NAME!r}: {error}") from error
    try:
        return _contract(given)
    except UnicodeEncodeError as error:
        raise ConfigError(f"provider {NAME!r}: header names and prefixes must be ASCII") from error


def _contract(given: Options) -> Contract:
    timestamp = None
    if given.timestamp_header is not None or given.timestamp_prefix is not None:
        timestamp = Timestamp(
            header=_name(given.timestamp_header),
            prefix=_ascii(given.timestamp_prefix),
            unit=given.timestamp_unit,
            tolerance=_tolerance(given),
        )
    scheme = Hmac(
        header=given.header.lower().encode("ascii"),
        message=given.message or ("{body}" if timestamp is None else "{ts}.{body}"),
        alg=given.alg,
        encoding=given.encoding,
        prefix=given.prefix.encode("ascii"),
        separator=_ascii(given.separator or None),
        timestamp=timestamp,
        id_header=_name(given.id_header),
        key=given.secret_encoding,
        key_prefix=given.secret_prefix,
    )
    if "body" not in fields(scheme.message):
        raise ConfigError(f"provider {NAME!r}: the signed message must contain {{body}}")
    return Contract(
        name=NAME,
        title="HMAC, described by the source's options",
        scheme=scheme,
        id=None if given.id is None else field(given.id),
        key=tuple(map(field, given.key)),
        immutable=tuple(map(field, given.immutable)),
        type=tuple(map(field, given.type)),
        first_types=tuple(given.first_types),
        last_types=tuple(given.last_types),
        object_id=tuple(map(field, given.object_id)),
        occurred_at=None if given.occurred_at is None else field(given.occurred_at),
        occurred_unit=given.occurred_unit,
        delivery_id=None if given.delivery_id is None else field(given.delivery_id),
        volatile=tuple(map(body, given.volatile)),
        items=None if given.items is None else (tuple(filter(None, given.items.split("."))),),
        max_body=given.max_body,
        retries=_retries(given),
    )


def _ascii(text: str | None) -> bytes | None:
    return None if text is None else text.encode("ascii")


def _name(text: str | None) -> bytes | None:
    return None if text is None else text.lower().encode("ascii")


def _tolerance(given: Options) -> float:
    if given.tolerance is not None:
        return given.tolerance
    return 300.0 if given.signs_each_attempt or given.retry_hours is None else 300.0 + given.retry_hours * 3600


def _retries(given: Options) -> Retries:
    hours = given.retry_hours
    signs: Literal["yes", "unknown"] = "yes" if given.signs_each_attempt else "unknown"
    return Retries(automatic=None if hours is None else hours > 0, hours=hours, signs_each_attempt=signs)
