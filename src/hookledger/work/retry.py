"""What kind of failure this is, and when to try again."""

from __future__ import annotations

import errno
import random
import socket
import ssl

import msgspec
from msgspec import Struct

from ..clock import Seconds
from ..errors import (
    BadArguments,
    BadResult,
    CallInTransaction,
    ConfigError,
    ForgottenAwait,
    NoTransaction,
    Permanent,
    Refused,
)
from ..providers.tolerant import UnreadableError


class RetryPolicy(Struct, frozen=True):
    """Exponential backoff with full jitter, bounded by attempts and age; both count per run.

    Full jitter: any moment up to the delay is as likely as another, so that
    events which failed together do not come back together.
    """

    attempts: int = 20
    """Tries in one run."""
    first: Seconds = Seconds("2s")
    """The longest wait after the first failure; it doubles with each."""
    longest: Seconds = Seconds("6h")
    """The wait never grows beyond this."""
    age: Seconds = Seconds("3d")
    """No further try after a run has lasted so long."""

    def __post_init__(self) -> None:
        for name in ("first", "longest", "age"):  # in Python, too, a duration may be written as text
            msgspec.structs.force_setattr(self, name, Seconds(getattr(self, name)))
        if self.attempts < 1 or self.first <= 0 or self.longest < self.first or self.age <= 0:
            raise ConfigError("a retry policy needs attempts >= 1, 0 < first <= longest and age > 0")

    def delay(self, attempt: int, chance: float | None = None) -> float:
        """Seconds until the try after `attempt`; `chance` in 0..1 replaces the die."""
        most = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return most * (random.random() if chance is None else chance)  # noqa: S311 - spreads load, guards nothing

    def exhausted(self, attempts: int, age: float) -> str | None:
        """Why there will be no further try, if so."""
        if attempts >= self.attempts:
            return f"attempts exhausted ({attempts})"
        if age >= self.age:
            return "older than the retry policy allows"
        return None


def is_permanent(error: BaseException) -> bool:
    """Whether trying again cannot help: validation, authorization and most 4xx answers of a remote.

    Everything else is taken for transient: its attempts are bounded anyway.
    """
    if isinstance(error, (Permanent, msgspec.ValidationError, PermissionError, UnreadableError)):
        return True
    if isinstance(error, (BadResult, BadArguments, ForgottenAwait, CallInTransaction, NoTransaction)):
        return True  # a defect of the handler's
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
"""Without those that have an exception of their own, which is a ConnectionError or a TimeoutError."""


def is_outage(error: BaseException) -> bool:
    """Whether the network failed, and not the code: a connection, a time-out, the resolution of a name."""
    if isinstance(error, (socket.gaierror, socket.herror, ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return True
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in _NETWORK:
        return True
    if any(kind.__name__ in _CONNECTIONS for kind in type(error).__mro__):
        return True
    return any(map(is_outage, _wrapped(error)))


def is_refusal(error: BaseException) -> bool:
    """Whether a call that failed like this certainly did not happen: it was not sent, or the remote refused it.

    A time-out, a reset, a 5xx answer and whatever is not known here are not that.
    """
    if isinstance(error, (Refused, Permanent)) or _never_sent(error):
        return True
    status = _http_status(error)
    return status is not None and 400 <= status < 500 and status not in (408, 499)


def is_trouble(error: BaseException) -> bool:
    """Whether it says that the downstream is in trouble, and not only that it did not like this one call."""
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
    """What it was raised for: urllib's URLError and urllib3's MaxRetryError keep it in `reason`, requests in its
    arguments."""
    causes = [getattr(error, "reason", None), *error.args[:1]]
    return [cause for cause in causes if isinstance(cause, BaseException) and cause is not error]


def _http_status(error: BaseException) -> int | None:
    """The status that a remote answered, wherever the common HTTP clients keep it."""
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status", "http_status"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def words(error: BaseException) -> str:
    """What an exception says, whatever it is."""
    try:
        return str(error)
    except Exception:  # an exception that cannot even say what it is
        return "it cannot be shown"


def clean(text: str, most: int) -> str:
    """What PostgreSQL's text can hold."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
