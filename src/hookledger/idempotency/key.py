"""The header `Idempotency-Key`: a string as structured fields write it, or its characters alone."""

from __future__ import annotations

import re

from ..errors import HookledgerError
from ..model import Headers

HEADER = b"idempotency-key"
MAX_KEY = 255
"""Characters of a key."""
_STRING = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE = re.compile(rb"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+")
"""Neither quotes, commas, semicolons nor backslashes: those would be a list, parameters or an unfinished string."""
_ESCAPED = re.compile(rb"\\(.)")


class BadKey(HookledgerError):
    """The header cannot be a key."""


def read_key(headers: Headers) -> str | None:
    """Return the key of a request; None without the header; raise BadKey if it is repeated or malformed."""
    given = [value.strip(b" \t") for name, value in headers if name == HEADER]
    if not given:
        return None
    if len(given) > 1:
        raise BadKey("the header Idempotency-Key was sent more than once: send one key")
    [value] = given
    if quoted := _STRING.fullmatch(value):
        key = _ESCAPED.sub(rb"\1", quoted[1])
    elif _BARE.fullmatch(value):
        key = value
    else:
        raise BadKey(
            "the header Idempotency-Key is not a string of visible ASCII characters: send it in double quotes, such "
            'as "8e03978e-40d5-43dd-bc93-6894a57f9324"'
        )
    if not 1 <= len(key) <= MAX_KEY:
        raise BadKey(f"the key has {len(key)} characters: send 1 to {MAX_KEY}")
    return key.decode("ascii")
