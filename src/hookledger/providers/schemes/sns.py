"""The envelope that Amazon SNS posts: which of its fields are signed, and the text that is signed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import cast

import msgspec

from ...errors import Malformed, Unauthentic

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


class _Pairs(list[tuple[str, object]]):
    """An object of the JSON with all its names, also those that come twice."""


def envelope(raw: bytes) -> Envelope:
    """The fields, as every reader of these bytes will find them; Malformed or Unauthentic if readers may differ."""
    try:
        content = msgspec.json.decode(raw)
        pairs = json.loads(raw.decode(), object_pairs_hook=_Pairs)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Malformed("body_malformed") from None
    if not isinstance(content, dict) or not isinstance(pairs, _Pairs) or len(pairs) != len(content):
        raise Malformed("body_malformed")  # not an object, or a name comes twice: verified one way, read another
    texts = {name: value for name, value in content.items() if isinstance(value, str)}
    if texts != {name: value for name, value in pairs if isinstance(value, str)}:
        raise Malformed("body_malformed")
    kind = texts.get("Type", "")
    if kind not in SIGNED:
        raise Unauthentic("signature_missing")
    for name in FIELDS:
        value = content.get(name)
        # What is signed in one type is not in the others: a confirmation's fields say nothing in a notification.
        if value is not None and (not isinstance(value, str) or name not in SIGNED[kind]):
            raise Malformed("body_malformed")
        if value is None and name in SIGNED[kind] and name != "Subject":
            raise Malformed("body_malformed")
    return texts


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
