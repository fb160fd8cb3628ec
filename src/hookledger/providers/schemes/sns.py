"""The envelope that Amazon SNS posts: which of its fields are signed, and the text that is signed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypedDict, cast

import msgspec
from msgspec import Raw

from ...errors import Malformed, Unauthentic
from ..tolerant import decode_plain

SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
"""By type, in the order in which they are signed. MessageAttributes and UnsubscribeURL are not."""

FIELDS = frozenset(name for names in SIGNED.values() for name in names)

TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}", re.ASCII)

Envelope = dict[str, str]
"""The fields of the envelope that are texts."""


UNSIGNED = ("Signature", "SignatureVersion", "SigningCertURL", "UnsubscribeURL", "MessageAttributes")

MAX_UNKNOWN = 256
"""Quotes in what Amazon does not document: a few fields may be new one day, thousands are a stranger's."""

_documented = msgspec.json.Decoder(TypedDict("Known", dict.fromkeys((*FIELDS, *UNSIGNED), Raw), total=False)).decode  # type: ignore[operator]
_all = msgspec.json.Decoder(dict[str, Raw]).decode


def envelope(raw: bytes) -> Envelope:
    """The fields, as every reader of these bytes will find them; Malformed or Unauthentic if readers may differ."""
    written = _written(raw)
    texts = {name: cast("str", decode_plain(value)) for name, value in written.items() if value.startswith(b'"')}
    kind = texts.get("Type", "")
    if kind not in SIGNED:
        raise Unauthentic("signature_missing")
    for name in FIELDS:
        present = written.get(name, b"null") != b"null"
        # What is signed in one type is not in the others: a confirmation's fields say nothing in a notification.
        if present and (name not in texts or name not in SIGNED[kind]):
            raise Malformed("body_malformed")
        if not present and name in SIGNED[kind] and name != "Subject":
            raise Malformed("body_malformed")
    return texts


def _written(raw: bytes) -> dict[str, bytes]:
    """The bytes of each field; Malformed if it is no object, or if a name comes twice: readers may differ then."""
    try:
        raw.decode()  # what is only scanned is not checked
        few = _quotes_beside(raw, _documented(raw)) <= MAX_UNKNOWN
        fields = _all(raw) if few else {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Malformed("body_malformed") from None
    if not few or _quotes_beside(raw, fields) != 0:
        raise Malformed("body_malformed")
    return {name: bytes(value) for name, value in fields.items()}


def _quotes_beside(raw: bytes, fields: Mapping[str, Raw]) -> int:
    """How many quotes belong neither to these values nor to their names: a name that comes twice leaves some."""
    return raw.count(b'"') - sum([2 + bytes(value).count(b'"') for value in fields.values()])


def canonical(fields: Envelope) -> bytes:
    """What is signed. Nothing is escaped, so a line break is refused wherever a field could end at it: only the
    message may have one, and where it ends is found from the end of the text."""
    lines = []
    for name in SIGNED[fields["Type"]]:
        if name in fields:
            if name != "Message" and "\n" in fields[name]:
                raise Malformed("body_malformed")
            lines.append(f"{name}\n{fields[name]}\n")
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise Malformed("body_malformed") from None


def text(fields: Envelope, name: str, role: str) -> bytes:
    """A field about the signature, which is not signed itself."""
    if not fields.get(name):
        raise Unauthentic(f"{role}_missing")
    return fields[name].encode("utf-8", "surrogatepass")


def drafted(raw: bytes, topic: str, message_id: str, now: float) -> dict[str, object]:
    """An envelope to sign: the given one with what it lacks, or a notification of whatever was given."""
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("Type") not in SIGNED:
        content = {"Type": "Notification", "Message": raw.decode("utf-8", "replace")}
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    usual = {"MessageId": message_id or "00000000-0000-0000-0000-000000000000", "Message": ""}
    return cast("dict[str, object]", {**usual, **content, "TopicArn": topic, "Timestamp": moment})
