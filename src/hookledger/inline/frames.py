"""What a receiver and its answering process tell each other: a length, then MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ..model import Arrival, Recorded
from ..receive.answering import Reply


class Ask(Struct, frozen=True, array_like=True):
    """A delivery, and the seconds until its answer comes too late."""

    number: int
    left: float
    arrival: Arrival


class Said(Struct, frozen=True, array_like=True):
    """What became of it: first that it is recorded, then the reply, or why there is none. Without a number: the
    process has started."""

    number: int = 0
    recorded: Recorded | None = None
    reply: Reply | None = None
    error: tuple[str, str] | None = None
    """The cause of a 503, and its words."""


LENGTH = struct.Struct("<I")
"""Stands before each message."""
STARTED = Said()
read_ask: Callable[[bytes], Ask] = msgspec.msgpack.Decoder(Ask).decode
read_said: Callable[[bytes], Said] = msgspec.msgpack.Decoder(Said).decode
_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode


def frame(message: Any) -> bytes:
    """A message with its length. Raises ValueError for text that cannot be encoded."""
    data = _encode(message)
    return LENGTH.pack(len(data)) + data
