"""Ids, and digests for unique constraints: of events, effects and remote operations."""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import cache
from hashlib import sha256
from uuid import UUID

import uuid_utils.compat

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
"""Sort before and after every id."""
MAX_TEXT = 255
"""Characters of a key or an id that is shown."""
CUT = "…sha256:"
"""What follows in one that was longer is the digest of the whole."""

# PostgreSQL's text holds neither NUL nor lone surrogates; other control characters would let a key write to a
# terminal or change the direction of the text beside it.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def new_id() -> UUID:
    """Return a UUIDv7: created before the insert, sorts by time."""
    return uuid_utils.compat.uuid7()


def stage_id(event_id: UUID, stage: str) -> UUID:
    """Return the id of an event's stage: always the same, and of the same time as the event's."""
    digest = sha256(event_id.bytes + stage.encode()).digest()
    return UUID(
        bytes=event_id.bytes[:6] + bytes([0x70 | digest[0] & 0x0F, digest[1], 0x80 | digest[2] & 0x3F]) + digest[3:10]
    )


def first_id(timestamp: float) -> UUID:
    """Return the first UUIDv7 of this millisecond, or of 1970."""
    return UUID(int=max(0, int(timestamp * 1000)) << 80)


def id_bounds(reference: str) -> tuple[UUID, UUID] | None:
    """Return the first and last id with this prefix, or None if it is not an id prefix."""
    digits = reference.replace("-", "").lower()
    if not 8 <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def identity(source: str, kind: bytes, *parts: bytes) -> bytes:
    """Return the digest for the unique constraint.

    The digest includes each part's length, so that ("a", "bc") and ("ab", "c") differ.
    """
    scope = _scope(source, kind)
    if len(parts) == 1:  # as most are
        return sha256(b"%b%d:%b" % (scope, len(parts[0]), parts[0])).digest()
    return sha256(scope + b"".join([b"%d:%b" % (len(part), part) for part in parts])).digest()


def digest_of_field(source: str, *parts: str) -> bytes:
    """Return the digest of a field of a source's events."""
    return identity(source, b"field", *(part.encode("utf-8", "surrogatepass") for part in parts))


@cache
def _scope(source: str, kind: bytes) -> bytes:
    name = source.encode()
    return b"%d:%b%d:%b" % (len(name), name, len(kind), kind)


def key_identity(source: str, *key: bytes) -> bytes:
    """Return the identity of an event with this key; a composite key has several parts."""
    return identity(source, b"key", *key)


def body_identity(source: str, fingerprint: bytes, kind: str = "") -> bytes:
    """Return the identity of a body; with `kind`, of this body as that event type."""
    return identity(source, b"body", kind.encode(), fingerprint)


def token_identity(source: str, token: bytes) -> bytes:
    """Return the identity of a token that is signed without the body."""
    return identity(source, b"token", token)


def quarantine_identity(source: str, key: bytes, fingerprint: bytes) -> bytes:
    """Return the identity of a quarantined delivery that an operator accepted; `key`: identity of its event key."""
    return identity(source, b"quarantine", key, fingerprint)


def effect_identity(scope: str, name: str, key: str) -> bytes:
    """Return the identity of an effect. `scope`: the source, or "" for a global effect; no source has that name."""
    return identity(scope, b"effect", name.encode(), key.encode())


def superseded_identity(identity: bytes, decision: UUID) -> bytes:
    """Return the new identity of a `once` row that this decision superseded."""
    return sha256(identity + decision.bytes).digest()


def operation(identity: bytes, generation: int) -> bytes:
    """Return the digest that an effect's idempotency keys are made of: the same for all its calls, unique to it."""
    return sha256(b"%b%d" % (identity, generation)).digest()


def operation_key(identity: bytes, generation: int) -> str:
    """Return `op.key`: 43 characters of a-z, 0-9 and _."""
    return f"hl_{operation(identity, generation)[:20].hex()}"


def show(value: bytes) -> str:
    """Return text that a database, a log and a terminal can hold; a digest replaces what was cut off."""
    text = value[: 4 * MAX_TEXT + 4].decode("utf-8", "replace")  # always more than MAX_TEXT characters, if there are
    if not (text.isascii() and text.isprintable()):
        text = _UNPRINTABLE.sub("\ufffd", text)
    if len(text) > MAX_TEXT:
        tail = f"{CUT}{sha256(value).hexdigest()}"
        text = text[: MAX_TEXT - len(tail)] + tail
    return text


def process_name() -> str:
    """Return a name for this process, or a part of it, among all that use the database: never the same twice."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
