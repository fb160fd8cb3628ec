"""Maps errors to answers. Every error is `{"error": CODE, "message": TEXT}`."""

from __future__ import annotations

import logging
import traceback

from msgspec import Struct

from ...errors import (
    BadArguments,
    BadData,
    BadResult,
    Blocked,
    ConfigError,
    HookledgerError,
    StoreError,
    Unavailable,
    WrongState,
)
from ..errors import Ambiguous, NotFound
from .auth import NotAllowed, NotAuthenticated

log: logging.Logger = logging.getLogger(__name__)


class Error(Struct, frozen=True):
    """Why the request failed."""

    error: str
    """One of a fixed set of codes."""
    message: str
    """The reason, for people."""


class ApiOff(HookledgerError):
    """The API is off, because no token is configured: name one in [operator] of hookledger.toml, such as
    tokens = [{ name = "ada", role = "operator", token = "env:HOOKLEDGER_TOKEN_ADA" }]."""

    def __init__(self) -> None:
        super().__init__(" ".join((type(self).__doc__ or "").split()))


class NoSuchCall(HookledgerError):
    """The API has no such call: GET /api/v1/openapi.json lists them."""


class NoSuchVersion(HookledgerError):
    """This version of the API does not exist: use /api/v1."""


class WrongMethod(HookledgerError):
    """The path has other methods."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path allows only {allowed}")
        self.allowed = allowed


class Malformed(HookledgerError):
    """The request is malformed."""


class TooLarge(HookledgerError):
    """The body is too large."""


class NotJson(HookledgerError):
    """The body is not JSON: send Content-Type: application/json without a content encoding."""


class Busy(HookledgerError):
    """Too many concurrent requests: try again soon."""


class TooSlow(HookledgerError):
    """The call took too long."""


TABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (Malformed, 400, "malformed"),
    (Ambiguous, 400, "ambiguous"),
    (NotAuthenticated, 401, "not_authenticated"),
    (NotAllowed, 403, "not_allowed"),
    (ApiOff, 404, "api_off"),
    (NoSuchVersion, 404, "no_such_version"),
    (NoSuchCall, 404, "no_such_call"),
    (NotFound, 404, "not_found"),
    (WrongMethod, 405, "wrong_method"),
    (WrongState, 409, "conflict"),
    (TooLarge, 413, "too_large"),
    (NotJson, 415, "not_json"),
    (BadData, 422, "bad_data"),
    (BadArguments, 422, "bad_data"),
    (BadResult, 422, "bad_data"),
    (ConfigError, 422, "not_possible"),
    (Busy, 503, "busy"),
    (TooSlow, 503, "too_slow"),
    (Blocked, 503, "blocked"),
    (Unavailable, 503, "unavailable"),
    (StoreError, 503, "unavailable"),
)
"""The first match applies."""

WORDS = {
    400: "The request is malformed, or a name in it is ambiguous.",
    401: "No valid token.",
    403: "The token's role does not allow it.",
    404: "Not found: no such call, or nothing has that name.",
    405: "The path has other methods; `Allow` names them.",
    409: "Not allowed in this state, or the state has changed; the message says what it is now.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is well-formed, but cannot be carried out or stored.",
    503: "The database is not available, or there are too many concurrent requests; retry after `Retry-After`.",
}
"""What each status means, for the OpenAPI description."""

HEADERS = {401: {"www-authenticate": 'Bearer realm="hookledger"'}, 503: {"retry-after": "2"}}


def answer(error: Exception) -> tuple[int, Error, dict[str, str]]:
    """Return status, body and headers. Every 503 is logged with its cause: an internal error in a statement looks
    like an unreachable database. An unexpected error is 500, logged by type and place only, since its text may quote
    a payload."""
    for kind, status, code in TABLE:
        if isinstance(error, kind):
            if status == 503:
                log.warning("API answered 503 (%s): %s", code, _behind(error))
            headers = dict(HEADERS.get(status, {}))
            if isinstance(error, WrongMethod):
                headers["allow"] = error.allowed
            return status, Error(code, str(error)), headers
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    log.error("API internal error: %s at %s", type(error).__name__, where)
    return 500, Error("failed", "internal error: the log says where"), {}


def _behind(error: Exception) -> str:
    """Return the type of the error and of its cause, and the first line of its text: later lines of a driver's error
    may quote a row."""
    kinds = [type(one).__name__ for one in (error, error.__cause__) if one is not None]
    first = str(error).strip().partition("\n")[0]
    return f"{' from '.join(kinds)}: {first[:300]}"
