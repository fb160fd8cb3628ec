"""Commands to Redis, each with a timeout; a failure of any kind is GuardUnavailable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MaxConnectionsError, NoScriptError, RedisError

from ...answer import Answer
from ...errors import BadResult
from .answers import Unstorable, decode
from .errors import GuardUnavailable
from .keys import Key
from .room import Room
from .scripts import (
    CLAIM,
    DECIDE,
    FINISH,
    PRINT_BYTES,
    RELEASE,
    RENEW,
    STARTED,
    TOKEN_BYTES,
    Script,
)

ATTEMPTS = 3
"""Connections that a command may need."""
POOL_DELAY = 0.01
"""Seconds until a pool that had no free connection is asked again."""


class Client(Protocol):
    """The part of `redis.asyncio.Redis` and `RedisCluster` that the guard uses."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...
    def scan_iter(self, match: Any = None, count: int | None = None) -> AsyncIterator[Any]: ...
    async def aclose(self) -> None: ...


class Record(NamedTuple):
    """What Redis keeps about a key beside its lease."""

    state: bytes
    token: bytes
    fingerprint: bytes
    payload: bytes

    @classmethod
    def read(cls, stored: bytes) -> Record:
        head = 1 + TOKEN_BYTES + PRINT_BYTES
        if not isinstance(stored, bytes) or len(stored) < head:
            raise BadResult("a record is damaged: another program may use keys of this prefix")
        return cls(stored[:1], stored[1 : 1 + TOKEN_BYTES], stored[1 + TOKEN_BYTES : head], stored[head:])

    @property
    def started(self) -> bool:
        return self.state == STARTED

    def answer(self) -> bytes | Answer | Unstorable:
        return decode(self.state, self.payload)

    def __bytes__(self) -> bytes:
        return b"".join(self)


class Held(NamedTuple):
    """Another caller has the lease, for a request with this fingerprint."""

    fingerprint: bytes


class Claim(NamedTuple):
    """What a caller brings to claim a key or to renew its lease."""

    key: Key
    token: bytes
    fingerprint: bytes
    marker: bytes
    """The record of started work; empty if the work may be repeated."""


class Commands:
    def __init__(self, client: Client, *, lease: float, window: float, timeout: float, max_commands: int) -> None:
        self._client = client
        self._lease = _milliseconds(lease)
        self._window = _milliseconds(window)
        self._timeout = timeout
        self._room = Room(max_commands)
        self._failed: tuple[float, str] = (float("-inf"), "")

    async def claim(self, claim: Claim) -> Held | Record | None:
        """Claim the key and return None, or return what stands against it."""
        args = (claim.token, claim.fingerprint, self._lease, claim.marker)
        verdict, *found = await self._run(CLAIM, claim.key, *args)
        if verdict == b"held":
            return Held(found[0][TOKEN_BYTES:])
        return Record.read(found[0]) if verdict == b"known" else None

    async def renew(self, claim: Claim) -> bool:
        """Renew the lease and return whether this caller still has the key."""
        args = (claim.token, claim.fingerprint, self._lease, claim.marker)
        return bool(await self._run(RENEW, claim.key, *args, first=True))

    async def finish(self, claim: Claim, record: Record) -> bool:
        """Store the record for the window and return whether this caller still had the key."""
        return bool(await self._run(FINISH, claim.key, claim.token, bytes(record), self._window, first=True))

    async def release(self, claim: Claim, *, did_nothing: bool) -> None:
        """Delete the lease, so that the next caller need not wait until it expires."""
        await self._run(RELEASE, claim.key, claim.token, b"1" if did_nothing else b"0", first=True)

    async def decide(self, key: Key, token: bytes, record: Record | None) -> bool:
        """Replace or delete a started record and return whether it was there, without a lease."""
        return bool(await self._run(DECIDE, key, token, bytes(record) if record else b"", self._window))

    async def read(self, key: Key) -> tuple[Held | None, Record | None]:
        """Return the lease and the record of a key."""
        lease, record = await self._send("MGET", key.lease, key.record)
        return (
            None if lease is None else Held(lease[TOKEN_BYTES:]),
            None if record is None else Record.read(record),
        )

    async def names(self, pattern: str) -> AsyncIterator[str]:
        """Yield the names in Redis that match, possibly one twice."""
        try:
            names = aiter(self._client.scan_iter(match=pattern, count=1000))
            while True:
                async with asyncio.timeout(self._timeout):
                    name = await anext(names)
                yield name.decode("utf-8", "replace")
        except StopAsyncIteration:
            return
        except (RedisError, OSError) as error:
            raise GuardUnavailable(f"keys cannot be listed: {self._told(error)}") from error

    async def _run(self, script: Script, key: Key, *args: bytes | int, first: bool = False) -> Any:
        keys_and_args = (2, key.lease, key.record, *args)
        try:
            return await self._send("EVALSHA", script.sha, *keys_and_args, first=first)
        except NoScriptError:  # a restart or a failover forgets scripts
            return await self._send("EVAL", script.text, *keys_and_args, first=first)

    async def _send(self, *command: Any, first: bool = False) -> Any:
        """`first`: of a caller that has the key."""
        asked = time.monotonic()
        async with self._room.enter(first=first):
            at, why = self._failed
            if at > asked:  # while it waited for room: it would fail as well, only later
                raise GuardUnavailable(f"Redis cannot guard the work now: {why}; try again later")
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._send_again(*command)
            except NoScriptError:
                raise
            except (RedisError, OSError) as error:
                why = self._told(error)
                self._failed = (time.monotonic(), why)
                raise GuardUnavailable(f"Redis cannot guard the work now: {why}; try again later") from error

    def _told(self, error: RedisError | OSError) -> str:
        return f"no answer within {self._timeout:g} s" if isinstance(error, TimeoutError) else _why(error)

    async def _send_again(self, *command: Any) -> Any:
        """Send it, and again over another connection where one broke: scripts may run twice (see scripts.py).

        After a restart each idle connection of the pool is broken, and that is not an outage.
        """
        attempts = 0
        while True:
            try:
                return await self._client.execute_command(*command)
            except MaxConnectionsError:  # all of the application's are in use: no outage, and the timeout ends it
                await asyncio.sleep(POOL_DELAY)
            except RedisConnectionError:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
