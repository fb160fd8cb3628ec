"""Which answer each error gets. Every error is `{"error": CODE, "message": WORDS}`."""

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
from ..insight import Ambiguous, NotFound
from .auth import NotAllowed, NotAuthenticated

log = logging.getLogger(__name__)


class Error(Struct, frozen=True):
    """Why a request was not answered as asked."""

    error: str
    """A code from a closed set."""
    message: str
    """For people."""


class ApiOff(HookledgerError):
    """The API is off, because no token is configured: name one in [operator] of hookledger.toml, such as
    tokens = [{ name = "ada", role = "operator", token = "env:HOOKLEDGER_TOKEN_ADA" }]."""

    def __init__(self) -> None:
        super().__init__(" ".join((type(self).__doc__ or "").split()))


class NoSuchCall(HookledgerError):
    """The API has no such call: GET /api/openapi.json lists them."""


class WrongMethod(HookledgerError):
    """The call has other methods."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path takes {allowed}")
        self.allowed = allowed


class Malformed(HookledgerError):
    """The request cannot be read."""


class TooLarge(HookledgerError):
    """The body is over the limit."""


class NotJson(HookledgerError):
    """A body is sent with another content type, and without a content encoding."""


class Busy(HookledgerError):
    """Too many requests at once: ask again in a moment."""


class TooSlow(HookledgerError):
    """It took too long."""


TABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (Malformed, 400, "malformed"),
    (Ambiguous, 400, "ambiguous"),
    (NotAuthenticated, 401, "not_authenticated"),
    (NotAllowed, 403, "not_allowed"),
    (ApiOff, 404, "api_off"),
    (NoSuchCall, 404, "no_such_call"),
    (NotFound, 404, "not_found"),
    (WrongMethod, 405, "wrong_method"),
    (WrongState, 409, "refused"),
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
"""The first that fits."""

WORDS = {
    400: "The request cannot be read, or what it names fits several.",
    401: "No valid token.",
    403: "The token's role does not allow it.",
    404: "There is nothing of that name, or no such call.",
    405: "The path has other methods; `Allow` names them.",
    409: "Not allowed as things stand, or they changed meanwhile: the message says what they are now.",
    413: "The body is over the limit.",
    415: "The body is not sent as JSON, or as JSON lines where these are asked for.",
    422: "It can be read, and cannot be done or kept.",
    503: "The database is not available, or too much is asked at once; `Retry-After` says when to ask again.",
}
"""What each status means, for the description."""

HEADERS = {401: {"www-authenticate": 'Bearer realm="hookledger"'}, 503: {"retry-after": "2"}}


def answer(error: Exception) -> tuple[int, Error, dict[str, str]]:
    """Status, body and headers. Every 503 is in the log, with what is behind it: a defect in a statement looks like a
    database that is away. What nobody expected is 500, logged by its kind and place and not by its words, which may
    quote a payload."""
    for kind, status, code in TABLE:
        if isinstance(error, kind):
            if status == 503:
                log.warning("the API answers 503 (%s): %s", code, _behind(error))
            headers = dict(HEADERS.get(status, {}))
            if isinstance(error, WrongMethod):
                headers["allow"] = error.allowed
            return status, Error(code, str(error)), headers
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    log.error("the API failed: %s at %s", type(error).__name__, where)
    return 500, Error("failed", "Something unexpected happened; the log says where."), {}


def _behind(error: Exception) -> str:
    """Its kind, that of its cause, and the first line of its words: what follows in a driver's may quote a row."""
    kinds = [type(one).__name__ for one in (error, error.__cause__) if one is not None]
    first = str(error).strip().partition("\n")[0]
    return f"{' from '.join(kinds)}: {first[:300]}"
