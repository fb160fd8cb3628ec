"""Classify failures, and decide when to retry."""

from __future__ import annotations

import errno
import random
import socket
import ssl

import msgspec
from msgspec import Struct

from .clock import Seconds
from .errors import (
    BadArguments,
    BadResult,
    CallInTransaction,
    ConfigError,
    ForgottenAwait,
    NoTicket,
    NoTransaction,
    Permanent,
    Refused,
    UnreadableError,
)


class RetryPolicy(Struct, frozen=True):
    """Exponential backoff with full jitter, bounded by attempts and age; both count per run.

    Full jitter spreads retries evenly over the delay, so that events which
    failed together are not retried together.
    """

    attempts: int = 20
    """Attempts in one run."""
    initial_delay: Seconds = Seconds("2s")
    """The longest delay after the first failure; it doubles with each further failure."""
    max_delay: Seconds = Seconds("6h")
    """The limit of that delay."""
    max_age: Seconds = Seconds("3d")
    """The age of a run after which it is not retried."""

    def __post_init__(self) -> None:
        for name in ("initial_delay", "max_delay", "max_age"):  # accept text in Python, too
            msgspec.structs.force_setattr(self, name, Seconds(getattr(self, name)))
        if self.attempts < 1 or not 0 < self.initial_delay <= self.max_delay or self.max_age <= 0:
            raise ConfigError("retry: attempts must be >= 1, 0 < initial_delay <= max_delay and max_age > 0")

    def delay(self, attempt: int, chance: float | None = None) -> float:
        """Return the seconds until the attempt after `attempt`; `chance` in 0..1 replaces the random number."""
        most = min(self.max_delay, self.initial_delay * 2.0 ** min(attempt - 1, 60))
        return most * (random.random() if chance is None else chance)  # noqa: S311 - spreads load, not for security

    def exhausted(self, attempts: int, age: float) -> str | None:
        """Return why there is no further attempt, or None if there is one."""
        if attempts >= self.attempts:
            return f"attempts exhausted ({attempts})"
        if age >= self.max_age:
            return "older than the retry policy allows"
        return None


def is_permanent(error: BaseException) -> bool:
    """Whether retrying cannot help: validation, authorization and most 4xx responses of a remote.

    Everything else counts as transient: its attempts are bounded.
    """
    if isinstance(error, (Permanent, msgspec.ValidationError, PermissionError, UnreadableError)):
        return True
    if isinstance(error, (BadResult, BadArguments, ForgottenAwait, CallInTransaction, NoTransaction, NoTicket)):
        return True  # a bug in the handler
    if any(kind.__name__ == "ValidationError" for kind in type(error).__mro__):
        return True
    status = _http_status(error)
    return status is not None and 400 <= status < 500 and status not in (408, 409, 425, 429)


_NEVER_SENT = {
    "ConnectError",  # httpx
    "ConnectTimeout",  # httpx, requests
    "PoolTimeout",  # httpx
    "ClientConnectorError",  # aiohttp
    "ConnectionTimeoutError",  # aiohttp
    "NewConnectionError",  # urllib3
    "ConnectTimeoutError",  # urllib3
    "NameResolutionError",  # urllib3
}


_CONNECTIONS = _NEVER_SENT | {
    "ConnectionError",  # requests, redis
    "Timeout",  # requests
    "TransportError",  # httpx
    "ClientConnectionError",  # aiohttp
    "ProtocolError",  # urllib3
    "TimeoutError",  # urllib3, redis
}
_NETWORK = {
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENETRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENOTCONN,
    errno.EADDRNOTAVAIL,
}
"""Only those without their own exception class, which is a ConnectionError or a TimeoutError."""


def is_outage(error: BaseException) -> bool:
    """Whether the network failed, not the code: a connection, a timeout or name resolution."""
    if isinstance(error, (socket.gaierror, socket.herror, ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return True
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in _NETWORK:
        return True
    if any(kind.__name__ in _CONNECTIONS for kind in type(error).__mro__):
        return True
    return any(map(is_outage, _wrapped(error)))


def is_refused(error: BaseException) -> bool:
    """Whether the failed call certainly did not happen: it was not sent, or the remote refused it.

    False for a timeout, a reset, a 5xx response and every unknown error.
    """
    if isinstance(error, (Refused, Permanent)) or _never_sent(error):
        return True
    status = _http_status(error)
    return status is not None and 400 <= status < 500 and status not in (408, 499)


def is_downstream_failure(error: BaseException) -> bool:
    """Whether the downstream itself failed, rather than rejected this one call."""
    if isinstance(error, (Refused, Permanent, BadArguments, BadResult)):
        return False
    if isinstance(error, (LookupError, TypeError, AttributeError, NameError, AssertionError, ArithmeticError)):
        return False  # a mistake in the effect's own code
    status = _http_status(error)
    return status is None or status in (408, 429) or status >= 500


def _never_sent(error: BaseException) -> bool:
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return True
    if any(kind.__name__ in _NEVER_SENT for kind in type(error).__mro__):
        return True
    return any(map(_never_sent, _wrapped(error)))


def _wrapped(error: BaseException) -> list[BaseException]:
    """Return the errors that caused this one: urllib's URLError and urllib3's MaxRetryError keep theirs in `reason`,
    requests in its arguments."""
    causes = [getattr(error, "reason", None), *error.args[:1]]
    return [cause for cause in causes if isinstance(cause, BaseException) and cause is not error]


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the remote's response, from wherever common HTTP clients keep it."""
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status", "http_status"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def message_of(error: BaseException) -> str:
    """Return an exception's message; never raises."""
    try:
        return str(error)
    except Exception:
        return "its message cannot be shown"


def clean(text: str, max_length: int) -> str:
    """Return at most `max_length` characters that PostgreSQL's text can hold."""
    return text[:max_length].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
