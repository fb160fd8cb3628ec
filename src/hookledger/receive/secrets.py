"""A source's secrets: where they are stored, and how they are read when the inbox starts."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError
from ..providers.contract import Contract

MISSING = 0.0
"""The expiry of a secret that was not read: it matches no signature."""


class SecretSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `secrets`, with its expiry; text alone is a secret that never expires."""

    secret: str
    """`env:NAME`, `file:/path` or the secret itself; read when the inbox starts."""
    expires: datetime | None = None
    """When it expires, with a time zone."""

    def __post_init__(self) -> None:
        if self.expires is not None and self.expires.tzinfo is None:
            raise ConfigError(f"a secret's expiry {self.expires} has no time zone: add one, such as Z")

    @property
    def expires_at(self) -> float | None:
        return None if self.expires is None else self.expires.timestamp()

    def __repr__(self) -> str:
        return f"SecretSettings(expires={self.expires})"


class Secret(Struct, frozen=True):
    """A key, prepared for its scheme."""

    key: bytes
    fingerprint: str
    """A short hash that identifies the secret in the ledger; never the secret."""
    expires_at: float | None = None
    """Unix time of its expiry."""
    text: bytes = b""
    """As configured: what a sender that puts it in the wrong place would send."""
    place: SecretSettings | None = None
    """Where it is read from at each start; None if the configuration holds the secret itself."""

    def __repr__(self) -> str:
        return f"Secret({self.fingerprint}, expires_at={self.expires_at})"


def read_again(secret: Secret, contract: Contract, *, required: bool) -> Secret:
    """Return the secret, read again from its place."""
    if secret.place is None:
        return secret
    try:
        return load_secret(secret.place, contract)
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


def given_secret(given: str | SecretSettings, contract: Contract) -> Secret:
    """Return the secret, or a placeholder that matches no signature until `env:` or `file:` is read."""
    given = SecretSettings(given) if isinstance(given, str) else given
    if is_place(given.secret):
        return Secret(os.urandom(32).hex().encode(), "not read", MISSING, place=given)
    return load_secret(given, contract)


def load_secret(given: str | SecretSettings, contract: Contract) -> Secret:
    """Return a secret from `env:NAME`, `file:/path` or the text itself. No error contains the secret."""
    given = SecretSettings(given) if isinstance(given, str) else given
    text, where = text_of(given.secret, "secret")
    scheme = contract.scheme
    try:
        key = scheme.prepare(text)
    except ValueError as error:
        raise ConfigError(f"the secret in {where} is not valid for {contract.title}: {error}") from None
    if len(key) < scheme.min_key or not key.strip():
        raise ConfigError(f"the secret in {where} is shorter than {scheme.min_key} bytes: use a longer one")
    fingerprint = hashlib.sha256(b"hookledger secret\0" + key).hexdigest()[:8]
    place = given if is_place(given.secret) else None
    return Secret(key, fingerprint, given.expires_at, text.strip().encode("utf-8", "surrogatepass"), place)


def is_place(source: str) -> bool:
    """Whether the text names the place of a secret rather than a secret."""
    return source.partition(":")[0] in ("env", "file")


def text_of(source: str, what: str) -> tuple[str, str]:
    """Return the text that `env:NAME` or `file:/path` names, or the text itself, and where it is from."""
    place, _, rest = source.partition(":")
    if place == "env":
        where, text = f"environment variable {rest}", os.environ.get(rest)
        if text is None:
            raise ConfigError(f"the {what} in {where} is not set: set it and start again")
    elif place == "file":
        where = f"file {rest}"
        try:
            text = Path(rest).read_text("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigError(f"the {what} in {where} cannot be read: {type(error).__name__}") from None
    else:
        where, text = "the configuration", source
    if not text.strip():
        raise ConfigError(f"the {what} in {where} is empty: set it")
    return text, where
