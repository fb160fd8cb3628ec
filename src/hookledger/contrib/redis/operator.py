"""What an operator can see of a key, and decide about an unknown outcome."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from ...errors import BadResult, WrongState
from .answers import encode, reason
from .commands import Commands, Record
from .keys import FORMAT, Key
from .scripts import STARTED, TOKEN_BYTES

_SHOWN = 200
"""Characters of a caller's key that a started record shows."""


class _Started(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a started record, for operators only."""

    at: float
    caller: str
    source: str
    key: str


@dataclass(frozen=True, slots=True)
class Status:
    """What Redis has about one key."""

    name: str
    """What its names in Redis share."""
    state: Literal["free", "running", "done", "unknown"]
    caller: str = ""
    source: str = ""
    key: str = ""
    """At most its first 200 characters."""
    started_at: datetime | None = None
    record: Record | None = None


def started(key: Key, token: bytes, fingerprint: bytes) -> Record:
    """Return the record of work that must not be repeated, to be written before it starts."""
    payload = _Started(time.time(), key.caller[:_SHOWN], key.source[:_SHOWN], key.key[:_SHOWN])
    return Record(STARTED, token, fingerprint, msgspec.msgpack.encode(payload))


class Operator:
    def __init__(self, commands: Commands, prefix: str, max_bytes: int) -> None:
        self._commands = commands
        self._prefix = prefix
        self._max_bytes = max_bytes

    async def look(self, key: Key) -> Status:
        held, record = await self._commands.read(key)
        known = _describe(record)
        caller, source, text = (known.caller, known.source, known.key) if known else key[:3]
        at = datetime.fromtimestamp(known.at, UTC) if known else None
        state: Literal["free", "running", "done", "unknown"] = "done"
        if held is not None:
            state = "running"
        elif record is None:
            state = "free"
        elif record.started:
            state = "unknown"
        return Status(key.name, state, caller, source, text[:_SHOWN], at, record)

    async def unknown(self) -> AsyncIterator[Status]:
        seen = set()
        async for name in self._commands.names(f"{self._prefix}:{FORMAT}:*:record"):
            if name in seen:
                continue
            seen.add(name)
            status = await self.look(Key("", "", "", name.removesuffix(":record")))
            if status.state == "unknown":
                yield status

    async def clear(self, status: Status) -> None:
        await self._decide(status, None)

    async def resolve(self, status: Status, answer: object) -> None:
        state, payload = encode(answer, self._max_bytes)
        if state == b"X":
            raise BadResult(f"this answer cannot be stored: {reason(payload)}")
        # With another token: the process that started the work would take the record for its answer.
        token = secrets.token_bytes(TOKEN_BYTES)
        seen = status.record
        await self._decide(status, seen and Record(state, token, seen.fingerprint, payload))

    async def _decide(self, status: Status, record: Record | None) -> None:
        seen = status.record
        key = Key(status.caller, status.source, status.key, status.name)
        if status.state != "unknown" or seen is None:
            raise WrongState(f"{status.name} is {status.state}: only an unknown outcome can be decided")
        if not await self._commands.decide(key, seen.token, record):
            raise WrongState(f"{status.name} changed since you looked: look again")


def _describe(record: Record | None) -> _Started | None:
    if record is None or not record.started:
        return None
    try:
        return msgspec.msgpack.decode(record.payload, type=_Started)
    except msgspec.DecodeError as error:
        raise BadResult("a started record is damaged: another program may use keys of this prefix") from error
