"""Who asks, and what they may: bearer tokens with roles."""

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

log = logging.getLogger(__name__)

SHORTEST = 20
"""Characters of a token, at least."""
SPEAK_EVERY = 60.0
"""Seconds between two lines in the log about requests without a valid token."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_TOKEN = re.compile(r"[!-~]+")


class Role(StrEnum):
    """What a token allows; each role may do what those before it may."""

    VIEWER = "viewer"
    """Sees what happened; no bodies, headers, arguments, results or tracebacks."""

    OPERATOR = "operator"
    """Sees everything, and decides about events, effects, circuits, bulk work, pauses and comparisons."""

    ADMIN = "admin"
    """Decides about what is known at all: imports keys, prunes, erases."""

    def covers(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


class NotAuthenticated(HookledgerError):
    """This needs a valid token: `Authorization: Bearer TOKEN`."""


class NotAllowed(HookledgerError):
    """The token's role does not allow this."""


class Caller(Struct, frozen=True):
    """`name` is the actor in the audit."""

    name: str
    role: Role

    def require(self, needed: Role, what: str = "this") -> None:
        if not self.role.covers(needed):
            raise NotAllowed(f"{what} needs the role {needed}, and the token {self.name!r} has the role {self.role}")


class Token(Struct, frozen=True):
    """A token, known by its digest only."""

    caller: Caller
    digest: bytes


def token(name: str, role: Role, text: str) -> Token:
    """Refuses, without ever quoting it, what nobody should rely on."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a token's name is the actor in the audit: letters, digits and . _ @ + -, not {name!r}")
    if len(text) < SHORTEST:
        raise ConfigError(f"the token {name!r} is shorter than {SHORTEST} characters")
    if not _TOKEN.fullmatch(text):
        raise ConfigError(f"the token {name!r} has characters that no header carries: visible ASCII only")
    return Token(Caller(name, role), _digest(text.encode()))


class Tokens:
    """All tokens. Counts what was refused; keeps nothing else about strangers."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = tuple(tokens)
        if len({one.caller.name for one in self._tokens}) < len(self._tokens):
            raise ConfigError("two tokens of [operator] have the same name: the audit could not tell them apart")
        if len({one.digest for one in self._tokens}) < len(self._tokens):
            raise ConfigError("two tokens of [operator] are the same: the audit could not tell them apart")
        self.refused = 0
        self._spoke = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._tokens)

    @property
    def callers(self) -> list[Caller]:
        return [one.caller for one in self._tokens]

    def who(self, authorization: Sequence[str]) -> Caller:
        """The one whose token is in the Authorization header. Every token is compared, in constant time."""
        presented = _digest(_bearer(authorization))
        found = [one for one in self._tokens if hmac.compare_digest(one.digest, presented)]
        if len(found) != 1:
            self._count()
            raise NotAuthenticated
        return found[0].caller

    def _count(self) -> None:
        self.refused += 1
        now = time.monotonic()
        if now - self._spoke >= SPEAK_EVERY:
            self._spoke = now
            log.warning("requests to the API without a valid token, since the start: %d", self.refused)


def _bearer(authorization: Sequence[str]) -> bytes:
    """What was presented; nothing where it is missing, of another scheme, or given twice."""
    if len(authorization) != 1:
        return b""
    scheme, _, presented = authorization[0].partition(" ")
    return presented.strip(" ").encode("latin-1", "replace") if scheme.lower() == "bearer" else b""


def _digest(text: bytes) -> bytes:
    return sha256(b"hookledger token\0" + text).digest()
