"""Names of keys in Redis."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from ...errors import ConfigError

_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_UNREADABLE = re.compile(r"[^A-Za-z0-9._-]")
_READABLE_LENGTH = 32
FORMAT = "1"
"""Part of each name: a release with another form of records does not meet these."""


class Key(NamedTuple):
    """One idempotency key of one caller, for one source."""

    caller: str
    source: str
    key: str
    name: str
    """The part that its names in Redis share."""

    @property
    def lease(self) -> str:
        return f"{self.name}:lease"

    @property
    def record(self) -> str:
        return f"{self.name}:record"

    def __str__(self) -> str:
        """For messages and logs: without the key itself, which callers choose and may hold secret."""
        return self.name


def check_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"{prefix!r} cannot begin the names of keys: use 1 to 64 of A-Z a-z 0-9 . _ : -")
    return prefix


def make_key(prefix: str, caller: str | bytes, source: str | bytes, key: str | bytes) -> Key:
    """Return the key; raises ConfigError if a part is empty.

    The digest covers each part with its length, so that no caller can choose a key that is another's. The parts
    before it are only for reading.
    """
    parts = [_bytes(what, part) for what, part in (("caller", caller), ("source", source), ("key", key))]
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()
    texts = [part.decode("utf-8", "backslashreplace") for part in parts]
    readable = ":".join(_UNREADABLE.sub("_", text[:_READABLE_LENGTH]) for text in texts[:2])
    # The braces are Redis Cluster's: both names of a key are in one slot, so that one script may use both.
    return Key(texts[0], texts[1], texts[2], f"{prefix}:{FORMAT}:{readable}:{{{digest}}}")


def fingerprint_of(request: str | bytes) -> bytes:
    """Return 32 bytes that differ for another request."""
    return hashlib.sha256(request if isinstance(request, bytes) else _encoded(request)).digest()


def _bytes(what: str, part: str | bytes) -> bytes:
    if not isinstance(part, str | bytes):
        raise ConfigError(f"{what} must be text or bytes, not {type(part).__name__}")
    if not part:
        raise ConfigError(f"{what} is empty: all callers without one would share their answers")
    return part if isinstance(part, bytes) else _encoded(part)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # servers decode bytes of a header that are not UTF-8 to surrogates
