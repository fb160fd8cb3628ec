"""One source as the intake sees it: a provider's contract, its secrets, its rules."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..errors import ConfigError
from ..model import Request
from ..providers import schemes
from ..providers.contract import Contract, outline

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Secret(Struct, frozen=True):
    """A key, prepared for the scheme it serves."""

    key: bytes
    fingerprint: str
    """A short hash, to tell secrets apart in the ledger; never the secret."""
    expires_at: float | None = None
    """Unix seconds; from then on it proves nothing."""

    def __repr__(self) -> str:
        return f"Secret({self.fingerprint}, expires_at={self.expires_at})"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A configured source. Made by `configure`, which knows the defaults."""

    name: str
    contract: Contract
    secrets: tuple[Secret, ...]
    types: frozenset[str] | None
    """The types it takes, exact or ending in `*`; None takes all."""
    other_types: Literal["skip", "refuse"]
    """What becomes of the rest: recorded as skipped, or answered 422."""
    key_required: bool
    """Refuse an event without a key, instead of making one from its content."""
    tolerance: float | None
    """Seconds either way for the signed time; None where no time is signed."""
    max_body: int
    public_url: str | None
    """The URL that the provider calls, where it is part of what is signed."""
    outline: Callable[[bytes], dict[str, object]] | None
    """Reads just enough of a body to identify it; None where all of it must be read."""
    key_signed: bool
    """Whether the signature covers the whole event key."""

    def allows(self, kind: str) -> bool:
        types = self.types
        return (
            types is None
            or kind in types
            or any(pattern.endswith("*") and kind.startswith(pattern[:-1]) for pattern in types)
        )

    def url(self, request: Request) -> bytes:
        """The URL as the provider called it, as far as it is signed."""
        if self.public_url is None:
            return b""
        return self.public_url.encode() + (b"?" + request.query if request.query else b"")


def configure(
    name: str,
    contract: Contract,
    secrets: Iterable[str | Secret],
    *,
    types: Iterable[str] | None = None,
    other_types: Literal["skip", "refuse"] = "skip",
    key_required: bool = False,
    tolerance: float | None = None,
    max_body: int | None = None,
    public_url: str | None = None,
) -> Endpoint:
    """Check everything that can be wrong with a source before the first request comes."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} cannot name a source: at most 64 letters, digits, '.', '_' and '-'")
    loaded = tuple(s if isinstance(s, Secret) else load_secret(s, contract) for s in secrets)
    if not loaded:
        raise ConfigError(f"source {name!r} has no secret, so nothing it receives could be verified")
    timestamp = contract.scheme.timestamp
    if tolerance is not None and timestamp is None:
        raise ConfigError(f"source {name!r}: {contract.title} signs no time to be tolerant of")
    if tolerance is not None and not 0 < tolerance < float("inf"):
        raise ConfigError(f"source {name!r}: a tolerance is a number of seconds above 0, not {tolerance}")
    if timestamp is not None and tolerance is None:
        tolerance = timestamp.tolerance
    if max_body is not None and max_body < 1:
        raise ConfigError(f"source {name!r}: max_body is a number of bytes above 0, not {max_body}")
    if contract.needs_public_url and not public_url:
        raise ConfigError(f"source {name!r}: {contract.title} signs the URL: set public_url")
    return Endpoint(
        name=name,
        contract=contract,
        secrets=loaded,
        types=None if types is None else frozenset(types),
        other_types=other_types,
        key_required=key_required,
        tolerance=tolerance,
        max_body=contract.max_body if max_body is None else max_body,
        public_url=public_url if contract.needs_public_url else None,
        outline=outline(contract),
        key_signed=contract.id_authenticated,
    )


def load_secret(source: str, contract: Contract, *, expires_at: float | None = None) -> Secret:
    """A secret from `env:NAME`, `file:/path` or the text itself. No error ever contains the secret."""
    place, _, rest = source.partition(":")
    if place == "env":
        where, text = f"environment variable {rest}", os.environ.get(rest)
        if text is None:
            raise ConfigError(f"the secret in {where} is not set")
    elif place == "file":
        where = f"file {rest}"
        try:
            text = Path(rest).read_text("utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigError(f"the secret in {where} cannot be read: {type(error).__name__}") from None
    else:
        where, text = "the configuration", source
    if not text.strip():
        raise ConfigError(f"the secret in {where} is empty")
    scheme = contract.scheme
    try:
        key = schemes.prepare_key(scheme, text)
    except ValueError as error:
        raise ConfigError(f"the secret in {where} is not one of {contract.title}'s: {error}") from None
    if len(key) < scheme.min_key or not key.strip():
        raise ConfigError(f"the secret in {where} is shorter than {scheme.min_key} bytes")
    return Secret(key, hashlib.sha256(b"hookledger secret\0" + key).hexdigest()[:8], expires_at)
