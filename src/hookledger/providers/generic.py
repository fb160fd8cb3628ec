"""`hmac`: any provider that signs with a keyed hash in a header, described by the user's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from .contract import Contract, Retries
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
    """What is signed, of {body}, {ts}, {id}, {url}, {method}; `{ts}.{body}` where a timestamp is, else `{body}`."""
    alg: Literal["sha1", "sha256", "sha512"] = "sha256"
    """The hash."""
    encoding: Literal["hex", "base64"] = "hex"
    """How the signature is written."""
    prefix: str = ""
    """What stands before the signature, such as `sha256=`."""
    separator: str | None = None
    """Between several signatures in one header."""
    timestamp_header: str | None = None
    """The header with the signed time."""
    timestamp_prefix: str | None = None
    """What stands before the signed time where it is in the signature's header, such as `t=`."""
    timestamp_unit: Unit = "s"
    """Of the signed time; `iso` is whole, with seconds and zone, as in 2027-01-31T09:00:00Z."""
    tolerance: float | None = None
    """Seconds that the signed time may be old; none: 300, and retry_hours besides unless signed_anew. Ahead it may be
    as much, and at most 300."""
    signed_anew: bool = False
    """Whether each attempt is signed anew, with a time of its own; what is not known counts as no."""
    id_header: str | None = None
    """The header whose value is {id} in the signed message."""
    secret_encoding: Literal["utf8", "base64", "hex"] = "utf8"  # noqa: S105
    """How the key is written in the secret."""
    secret_prefix: str = ""
    """Dropped from the secret before it is decoded."""
    id: str | None = None
    """The field with the event's id."""
    key: list[str] = []
    """The fields that make two deliveries one event; the id if none."""
    immutable: list[str] = []
    """Where an event has no key: the fields whose digest stands for it."""
    type: list[str] = []
    """The fields of the event's type, joined by dots."""
    object_id: list[str] = []
    """The fields with the id of what the event is about; the first one present counts."""
    occurred_at: str | None = None
    """The field with the time of the event."""
    occurred_unit: Literal["s", "ms", "us"] = "s"
    """Of that time, where it is a number."""
    delivery_id: str | None = None
    """The field with the id of this one delivery."""
    volatile: list[str] = []
    """Paths in the body that differ between deliveries of the same event."""
    items: str | None = None
    """The path to the array of events; empty where the body is that array."""
    max_body: int = 1024 * 1024
    """Bytes."""
    retry_hours: float | None = None
    """How long the provider repeats a delivery by itself; 0: it never does; none: not known."""


def contract(options: Mapping[str, object]) -> Contract:
    """The contract that the options describe."""
    known = [field.name for field in msgspec.structs.fields(Options)]
    for name in options:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise ConfigError(f"provider {NAME!r} has no option {name!r}: {hint}")
    try:
        given = msgspec.convert(dict(options), Options)
    except msgspec.ValidationError as error:
        raise ConfigError(f"provider {NAME!r}: {error}") from error
    try:
        return _contract(given)
    except UnicodeEncodeError as error:
        raise ConfigError(f"provider {NAME!r}: header names and prefixes are ASCII") from error


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
    return 300.0 if given.signed_anew or given.retry_hours is None else 300.0 + given.retry_hours * 3600


def _retries(given: Options) -> Retries:
    hours = given.retry_hours
    anew: Literal["yes", "unknown"] = "yes" if given.signed_anew else "unknown"
    return Retries(automatic=None if hours is None else hours > 0, hours=hours, anew=anew)
