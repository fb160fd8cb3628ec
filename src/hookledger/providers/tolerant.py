"""JSON as providers send it. The signature's parts and the event's fields must be read alike: both are read here."""

from __future__ import annotations

import json
import re
from itertools import accumulate

import msgspec

MAX_NESTING = 128


class UnreadableError(ValueError):
    """The body is not what the contract says; the text is the reason, without any of the body in it."""


def decode_json(raw: bytes) -> object:
    """More tolerant than msgspec alone: lone surrogates and NaN are what some providers send, so the standard library
    has the second word."""
    try:
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            document = json.loads(raw.decode())
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except ValueError:
        raise UnreadableError("not JSON") from None
    # The interpreter's own limit depends on how deep the caller is; the same bytes must always be read alike.
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _depth(raw) > MAX_NESTING:
        raise UnreadableError("nested too deeply")
    return document


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - set(_STEP))


def _depth(raw: bytes) -> int:
    """How deep well-formed JSON is nested."""
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)
