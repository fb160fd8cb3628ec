"""The envelope of Amazon SNS: its signed fields and the signed text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypedDict, cast

import msgspec
from msgspec import Raw

from ...errors import Malformed, Unauthentic
from ..tolerant import decode_plain

SIGNED: dict[str, tuple[str, ...]] = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
"""Signed fields by type, in the order of the signed text. MessageAttributes and UnsubscribeURL are not signed."""

FIELDS: frozenset[str] = frozenset(name for names in SIGNED.values() for name in names)

TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}", re.ASCII)

Envelope = dict[str, str]
"""The text fields of the envelope."""


UNSIGNED = ("Signature", "SignatureVersion", "SigningCertURL", "UnsubscribeURL", "MessageAttributes")

MAX_UNKNOWN = 256
"""Quotes in undocumented fields: Amazon may add a few fields, thousands are an attack."""

_documented = msgspec.json.Decoder(TypedDict("Known", dict.fromkeys((*FIELDS, *UNSIGNED), Raw), total=False)).decode  # type: ignore[operator]
_all = msgspec.json.Decoder(dict[str, Raw]).decode


def envelope(raw: bytes) -> Envelope:
    """Return the fields that every JSON parser finds; raise Malformed or Unauthentic if parsers may differ."""
    written = _written(raw)
    texts = {name: cast("str", decode_plain(value)) for name, value in written.items() if value.startswith(b'"')}
    kind = texts.get("Type", "")
    if kind not in SIGNED:
        raise Unauthentic("signature_missing")
    for name in FIELDS:
        present = written.get(name, b"null") != b"null"
        # Each type signs its own fields: a confirmation's fields are unsigned in a notification.
        if present and (name not in texts or name not in SIGNED[kind]):
            raise Malformed("body_malformed")
        if not present and name in SIGNED[kind] and name != "Subject":
            raise Malformed("body_malformed")
    return texts


def _written(raw: bytes) -> dict[str, bytes]:
    """Return the bytes of each field; raise Malformed unless it is an object with unique names, because parsers
    differ on duplicates."""
    try:
        raw.decode()  # msgspec does not check what it only scans
        few = _quotes_beside(raw, _documented(raw)) <= MAX_UNKNOWN
        fields = _all(raw) if few else {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Malformed("body_malformed") from None
    if not few or _quotes_beside(raw, fields) != 0:
        raise Malformed("body_malformed")
    return {name: bytes(value) for name, value in fields.items()}


def _quotes_beside(raw: bytes, fields: Mapping[str, Raw]) -> int:
    """Return the number of quotes outside these names and values; a duplicate name leaves some."""
    return raw.count(b'"') - sum([2 + bytes(value).count(b'"') for value in fields.values()])


def canonical(fields: Envelope) -> bytes:
    """Return the signed text. Nothing is escaped, so a line break is rejected in every field but the message, whose
    end is found from the end of the text."""
    lines = []
    for name in SIGNED[fields["Type"]]:
        if name in fields:
            if name != "Message" and "\n" in fields[name]:
                raise Malformed("body_malformed")
            lines.append(f"{name}\n{fields[name]}\n")
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:  # lone surrogate
        raise Malformed("body_malformed") from None


def text(fields: Envelope, name: str, role: str) -> bytes:
    """Return an unsigned field that describes the signature."""
    if not fields.get(name):
        raise Unauthentic(f"{role}_missing")
    return fields[name].encode("utf-8", "surrogatepass")


def drafted(raw: bytes, topic: str, message_id: str, now: float) -> dict[str, object]:
    """Return an envelope to sign: the given one, completed, or a notification with the given text."""
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("Type") not in SIGNED:
        content = {"Type": "Notification", "Message": raw.decode("utf-8", "replace")}
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    usual = {"MessageId": message_id or "00000000-0000-0000-0000-000000000000", "Message": ""}
    return cast("dict[str, object]", {**usual, **content, "TopicArn": topic, "Timestamp": moment})
