"""Adyen's classic notifications: each item of the body has a signature of eight of its fields."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any, ClassVar

import msgspec

from ...errors import Malformed, Unauthentic, UnreadableError
from ...model import Request
from ..fields import Body, Constant, Field
from ..tolerant import Picker, tree_of
from .base import Coverage, Defaults, Draft, Keyring, Presented, adding, key_bytes

SIGNED = (
    ("pspReference",),
    ("originalReference",),
    ("merchantAccountCode",),
    ("merchantReference",),
    ("amount", "value"),
    ("amount", "currency"),
    ("eventCode",),
    ("success",),
)
"""In the order of the signed message; an absent field counts as empty."""

MAX_ITEMS = 1000
"""Adyen sends one item per JSON request; the limit bounds the work for unverified requests."""

_read = Picker(
    {"notificationItems": [{"NotificationRequestItem": tree_of(*SIGNED, ("additionalData", "hmacSignature"))}]}
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{43}=")


class AdyenItems(Defaults, frozen=True, kw_only=True):
    """Only the eight fields are signed: others, such as `reason`, may be forged."""

    name: ClassVar[str] = "adyen-items"
    coverage: ClassVar[Coverage] = "fields"
    min_key: int = 16

    def signs(self, field: Field) -> bool:
        return isinstance(field, Constant) or (isinstance(field, Body) and field.path in SIGNED)

    def prepare(self, secret: str) -> bytes:
        return key_bytes(secret, "hex")

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        """Read every item: each must be verified, so that none is forged."""
        signatures, messages = [], []
        for item in _items(request.body):
            extra = item.get("additionalData")
            signature = extra.get("hmacSignature") if isinstance(extra, dict) else None
            if not isinstance(signature, str) or not signature:
                raise Unauthentic("signature_missing")
            signatures.append(signature.encode("utf-8", "surrogatepass"))
            messages.append(_message(item))
        if not signatures:
            raise Unauthentic("signature_missing")
        return Presented(candidates=tuple(signatures), messages=tuple(messages))

    def matches(self, key: bytes, presented: Presented) -> bool:
        pairs = zip(presented.messages, presented.candidates, strict=True)
        return all(hmac.compare_digest(_signature(key, message), candidate) for message, candidate in pairs)

    def plausible(self, presented: Presented) -> bool:
        return all(_BASE64.fullmatch(candidate) for candidate in presented.candidates)

    def sign(self, key: bytes, draft: Draft) -> Draft:
        document = msgspec.json.decode(draft.body)
        for wrapper in document["notificationItems"]:
            item = wrapper["NotificationRequestItem"]
            signature = _signature(key, _message(item)).decode()
            item["additionalData"] = {**item.get("additionalData", {}), "hmacSignature": signature}
        return adding(draft, {}, body=msgspec.json.encode(document))


def _items(raw: bytes) -> list[dict[str, Any]]:
    try:
        document = _read(raw)
    except UnreadableError:
        raise Malformed("body_malformed") from None
    wrappers = document.get("notificationItems") if isinstance(document, dict) else None
    if not isinstance(wrappers, list) or len(wrappers) > MAX_ITEMS:
        raise Malformed("body_malformed")
    items = [wrapper.get("NotificationRequestItem") if isinstance(wrapper, dict) else None for wrapper in wrappers]
    if not all(isinstance(item, dict) for item in items):
        raise Malformed("body_malformed")
    return items  # type: ignore[return-value]


def _message(item: dict[str, Any]) -> bytes:
    return b":".join([_text(item, path) for path in SIGNED])


def _text(item: dict[str, Any], path: tuple[str, ...]) -> bytes:
    value: Any = item
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return b""
    # Only Adyen's own form: `true` and "true" would have the same signature but different keys.
    if path == ("amount", "value") and isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    if not isinstance(value, str):
        raise Malformed("body_malformed")
    # Nothing is escaped: with a colon in a second field the signed text would be ambiguous.
    if ":" in value and path != ("merchantReference",):
        raise Malformed("body_malformed")
    return value.encode("utf-8", "surrogatepass")


def _signature(key: bytes, message: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, message, hashlib.sha256))
