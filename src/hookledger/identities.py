"""Ids, and the digests that unique constraints decide on: of events, of effects, of the operations at a remote."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from uuid import UUID

import uuid_utils.compat

LAST_ID = UUID(int=2**128 - 1)
"""After every id."""


def new_id() -> UUID:
    """A UUIDv7: made before the insert, sorted by time."""
    return uuid_utils.compat.uuid7()


def id_bounds(reference: str) -> tuple[UUID, UUID] | None:
    """The first and last id that begin like this, or None if none can."""
    digits = reference.replace("-", "").lower()
    if not 8 <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def identity(source: str, kind: bytes, *parts: bytes) -> bytes:
    """The digest that the unique constraint decides on.

    Each part goes in with its length, so that ("a", "bc") and ("ab", "c") differ.
    """
    scope = _scope(source, kind)
    if len(parts) == 1:  # as most are
        return sha256(b"%b%d:%b" % (scope, len(parts[0]), parts[0])).digest()
    return sha256(scope + b"".join([b"%d:%b" % (len(part), part) for part in parts])).digest()


@cache
def _scope(source: str, kind: bytes) -> bytes:
    name = source.encode()
    return b"%d:%b%d:%b" % (len(name), name, len(kind), kind)


def key_identity(source: str, *key: bytes) -> bytes:
    """The identity of an event whose key consists of these exact bytes; several where it is composite."""
    return identity(source, b"key", *key)


def body_identity(source: str, fingerprint: bytes, kind: str = "") -> bytes:
    """The identity of a body, whatever it is called; with its type, the same body as that type alone."""
    return identity(source, b"body", kind.encode(), fingerprint)


def token_identity(source: str, token: bytes) -> bytes:
    """The identity of what is signed without the body."""
    return identity(source, b"token", token)


def admitted_identity(source: str, key: bytes, fingerprint: bytes) -> bytes:
    """The identity of content that an operator admitted under a key that another event has; `key` is its identity."""
    return identity(source, b"admitted", key, fingerprint)


def effect_identity(scope: str, name: str, key: str) -> bytes:
    """The identity of an effect. `scope` is the source, or "" for a global effect: no source is called so."""
    return identity(scope, b"effect", name.encode(), key.encode())


def superseded_identity(identity: bytes, decision: UUID) -> bytes:
    """Where the row of a `once` stays that made way for its repetition by this decision."""
    return sha256(identity + decision.bytes).digest()


def operation(identity: bytes, generation: int) -> bytes:
    """What the idempotency keys of an effect are made of. One digest for all its calls, and no other's."""
    return sha256(b"%b%d" % (identity, generation)).digest()


def operation_key(identity: bytes, generation: int) -> str:
    """`op.key`: 43 characters of a-z, 0-9 and _."""
    return f"hl_{operation(identity, generation)[:20].hex()}"
