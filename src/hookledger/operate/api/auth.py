"""Bearer tokens with roles: who calls, and what the caller may do."""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

from ...errors import ConfigError, HookledgerError

log: logging.Logger = logging.getLogger(__name__)

SHORTEST = 20
"""Minimum length of a token."""
SPEAK_EVERY = 60.0
"""Seconds between two log lines about requests without a valid token."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_TOKEN = re.compile(r"[!-~]+")


class Role(StrEnum):
    """What a token allows; each role includes those before it."""

    VIEWER = "viewer"
    """Reads what happened, without bodies, headers, arguments, results and tracebacks."""

    OPERATOR = "operator"
    """Reads everything, and decides about events, effects, circuits, jobs, pauses and reconciliation."""

    ADMIN = "admin"
    """Imports keys, prunes and erases."""

    def covers(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


class NotAuthenticated(HookledgerError):
    """A valid token is required: send `Authorization: Bearer TOKEN`."""


class NotAllowed(HookledgerError):
    """The token's role does not allow this."""


class Caller(Struct, frozen=True):
    """Who calls; `name` is the actor in the audit log."""

    name: str
    role: Role

    def require(self, needed: Role, what: str = "this") -> None:
        if not self.role.covers(needed):
            raise NotAllowed(f"{what} needs the role {needed}; the token {self.name!r} has the role {self.role}")


class Token(Struct, frozen=True):
    """A token, stored as a digest only."""

    caller: Caller
    digest: bytes


def token(name: str, role: Role, text: str) -> Token:
    """Return a token; ConfigError if its name or text is unsafe. The error never quotes the text."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"token name {name!r} is not allowed: use letters, digits and . _ @ + -")
    if len(text) < SHORTEST:
        raise ConfigError(f"token {name!r} is too short: use at least {SHORTEST} characters")
    if not _TOKEN.fullmatch(text):
        raise ConfigError(f"token {name!r} has characters that a header cannot carry: use visible ASCII")
    return Token(Caller(name, role), _digest(text.encode()))


class Tokens:
    """All tokens. Counts requests without a valid token, and stores nothing else about them."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = tuple(tokens)
        if len({one.caller.name for one in self._tokens}) < len(self._tokens):
            raise ConfigError("two tokens of [operator] have the same name: the audit log needs distinct names")
        if len({one.digest for one in self._tokens}) < len(self._tokens):
            raise ConfigError("two tokens of [operator] are equal: give each caller its own token")
        self.unauthenticated: int = 0
        self._spoke = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._tokens)

    @property
    def callers(self) -> list[Caller]:
        return [one.caller for one in self._tokens]

    def who(self, authorization: Sequence[str]) -> Caller:
        """Return the caller whose token the Authorization header has. Compares with every token, in constant time."""
        presented = _digest(_bearer(authorization))
        found = [one for one in self._tokens if hmac.compare_digest(one.digest, presented)]
        if len(found) != 1:
            self._count()
            raise NotAuthenticated
        return found[0].caller

    def _count(self) -> None:
        self.unauthenticated += 1
        now = time.monotonic()
        if now - self._spoke >= SPEAK_EVERY:
            self._spoke = now
            log.warning("API requests without a valid token since the start: %d", self.unauthenticated)


def _bearer(authorization: Sequence[str]) -> bytes:
    """Return the presented token; empty if it is missing, has another scheme, or is given twice."""
    if len(authorization) != 1:
        return b""
    scheme, _, presented = authorization[0].partition(" ")
    return presented.strip(" ").encode("latin-1", "replace") if scheme.lower() == "bearer" else b""


def _digest(text: bytes) -> bytes:
    return sha256(b"hookledger token\0" + text).digest()
