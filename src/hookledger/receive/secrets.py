"""A source's secrets: where they stand, and how they are read when the inbox starts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError
from ..providers.contract import Contract

MISSING = 0.0
"""The expiry of a secret that was not read: it proves nothing."""


class Place(Struct, frozen=True):
    """A secret as it is configured. What `env:` and `file:` name is read when the inbox starts."""

    source: str
    """`env:NAME`, `file:/path` or the secret itself."""
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"Place(expires_at={self.expires_at})"


class Secret(Struct, frozen=True):
    """A key, prepared for the scheme it serves."""

    key: bytes
    fingerprint: str
    """A short hash, to tell secrets apart in the ledger; never the secret."""
    expires_at: float | None = None
    """Unix seconds; from then on it proves nothing."""
    text: bytes = b""
    """As it is written in the configuration: what a sender that puts it in the wrong place would send."""
    place: Place | None = None
    """Where it is read from at each start; None where the configuration holds the secret itself."""

    def __repr__(self) -> str:
        return f"Secret({self.fingerprint}, expires_at={self.expires_at})"


def read_again(secret: Secret, contract: Contract, *, required: bool) -> Secret:
    """The secret as it stands now in its place."""
    if secret.place is None:
        return secret
    try:
        return load_secret(secret.place.source, contract, expires_at=secret.place.expires_at)
    except ConfigError:
        if required:
            raise
        return secret


def text_or_none(source: str, what: str, *, required: bool) -> str | None:
    try:
        return text_of(source, what)[0]
    except ConfigError:
        if required:
            raise
        return None


def given_secret(secret: str | Place, contract: Contract) -> Secret:
    """The secret itself, or what stands for it, and proves nothing, until its place is read."""
    place = Place(secret) if isinstance(secret, str) else secret
    if is_place(place.source):
        return Secret(os.urandom(32).hex().encode(), "not read", MISSING, place=place)
    return load_secret(place.source, contract, expires_at=place.expires_at)


def load_secret(source: str, contract: Contract, *, expires_at: float | None = None) -> Secret:
    """A secret from `env:NAME`, `file:/path` or the text itself. No error ever contains the secret."""
    text, where = text_of(source, "secret")
    scheme = contract.scheme
    try:
        key = scheme.prepare(text)
    except ValueError as error:
        raise ConfigError(f"the secret in {where} is not one of {contract.title}'s: {error}") from None
    if len(key) < scheme.min_key or not key.strip():
        raise ConfigError(f"the secret in {where} is shorter than {scheme.min_key} bytes")
    fingerprint = hashlib.sha256(b"hookledger secret\0" + key).hexdigest()[:8]
    place = Place(source, expires_at) if is_place(source) else None
    return Secret(key, fingerprint, expires_at, text.strip().encode("utf-8", "surrogatepass"), place)


def is_place(source: str) -> bool:
    """Whether it says where a secret stands, and is not one itself."""
    return source.partition(":")[0] in ("env", "file")


def text_of(source: str, what: str) -> tuple[str, str]:
    """What `env:NAME`, `file:/path` or the text itself stands for, and where it is from."""
    place, _, rest = source.partition(":")
    if place == "env":
        where, text = f"environment variable {rest}", os.environ.get(rest)
        if text is None:
            raise ConfigError(f"the {what} in {where} is not set; set it and start again")
    elif place == "file":
        where = f"file {rest}"
        try:
            text = Path(rest).read_text("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigError(f"the {what} in {where} cannot be read: {type(error).__name__}") from None
    else:
        where, text = "the configuration", source
    if not text.strip():
        raise ConfigError(f"the {what} in {where} is empty")
    return text, where
