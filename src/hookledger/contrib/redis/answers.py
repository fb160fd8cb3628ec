"""The answer of the work as bytes in Redis."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ...answer import Answer
from ...errors import BadResult

T = TypeVar("T", bound=bytes | Answer)
"""What the work returns."""


class Unstorable(msgspec.Struct, frozen=True, array_like=True):
    """The work ended, and this is why its answer was not stored."""

    reason: str


_ANSWER = msgspec.msgpack.Decoder(tuple[int, bytes, tuple[tuple[str, str], ...]])
_UNSTORABLE = msgspec.msgpack.Decoder(Unstorable)


def encode(answer: object, max_bytes: int) -> tuple[bytes, bytes]:
    """Return the state and the bytes of a record; the state `X` if the answer cannot be stored."""
    if isinstance(answer, Answer):
        state, payload = b"A", msgspec.msgpack.encode((answer.status, answer.body, answer.headers))
    elif isinstance(answer, bytes):
        state, payload = b"B", answer
    else:
        return _unstorable(f"the work must return bytes or an Answer, not {type(answer).__name__}")
    if len(payload) > max_bytes:
        return _unstorable(f"the answer has {len(payload)} bytes and the limit is {max_bytes}: return a reference")
    return state, payload


def _unstorable(why: str) -> tuple[bytes, bytes]:
    return b"X", msgspec.msgpack.encode(Unstorable(why))


def reason(payload: bytes) -> str:
    """Return why an answer could not be stored."""
    return _UNSTORABLE.decode(payload).reason


def decode(state: bytes, payload: bytes) -> bytes | Answer | Unstorable:
    """Return what `encode` got; raises BadResult if these are not its bytes."""
    if state == b"B":
        return payload
    try:
        if state == b"A":
            status, body, headers = _ANSWER.decode(payload)
            return Answer(body, status, headers)
        if state == b"X":
            return _UNSTORABLE.decode(payload)
    except msgspec.DecodeError as error:
        raise BadResult("the stored answer is damaged: another program may use keys of this prefix") from error
    raise BadResult(f"the stored answer has the unknown form {state!r}: a newer release may have written it")
