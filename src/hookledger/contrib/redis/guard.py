"""Run the work of a key once, and give its answer to duplicates."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

import redis

from ...clock import Seconds
from ...errors import BadResult, ClaimLost, ConfigError, Refused, UnknownOutcome
from ...observe.logs import RateLimitedLogger
from .answers import T, Unstorable, encode, reason
from .commands import Claim, Client, Commands, Record
from .errors import GuardUnavailable, KeyConflict, NotStored
from .keys import Key, check_prefix, fingerprint_of, make_key
from .lease import Lease
from .operator import Operator, Status, started
from .outcome import Outcome
from .scripts import TOKEN_BYTES
from .waiting import Waiting

R = TypeVar("R")

STORE_DELAYS = (0.0, 0.1, 0.4)
"""Seconds before each attempt to store an answer."""


class Guard:
    """Runs work at most once per caller, source and key as long as Redis keeps what it acknowledged.

    `client`: a `redis.asyncio.Redis` or `RedisCluster` without `decode_responses`. The guard never closes it.
    `away`: what happens while Redis does not answer. "closed": the work does not run, GuardUnavailable is raised.
    "open": the work runs without a guard.
    `lease`: how long after the death of a process its keys are free again. `window`: how long answers are kept.
    `timeout`: for each command. `max_bytes`: of an answer. `max_waiting`: callers of this process that may wait.
    """

    def __init__(
        self,
        client: Client,
        *,
        away: Literal["closed", "open"],
        prefix: str = "hookledger",
        lease: float | str = "10s",
        window: float | str = "24h",
        timeout: float | str = "500ms",
        max_bytes: int = 256 * 1024,
        max_waiting: int = 256,
        max_commands: int = 64,
    ) -> None:
        if away not in ("closed", "open"):
            raise ConfigError(f"away={away!r}: it must be 'closed' (refuse) or 'open' (run without a guard)")
        self._lease, self._window, limit = Seconds(lease), Seconds(window), Seconds(timeout)
        if not 0 < 3 * limit < self._lease:
            raise ConfigError(f"a lease of {self._lease:g} s is too short: it must be more than three timeouts")
        if self._window < self._lease:
            raise ConfigError(f"a window of {self._window:g} s is shorter than the lease: duplicates would run")
        _check_client(client)
        self._away, self._prefix, self._max_bytes = away, check_prefix(prefix), max_bytes
        self._commands = Commands(
            client, lease=self._lease, window=self._window, timeout=limit, max_commands=max_commands
        )
        self._waiting = Waiting(self._commands, max_waiting)
        self._operator = Operator(self._commands, self._prefix, max_bytes)
        self._log = RateLimitedLogger(logging.getLogger("hookledger.contrib.redis"))
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        work: Callable[[Lease], Awaitable[T]],
        *,
        caller: str | bytes,
        source: str | bytes,
        key: str | bytes,
        fingerprint: str | bytes,
        repeat: Literal["safe", "never"],
        wait: float = 0.0,
    ) -> Outcome[T]:
        """Run `work` and store its answer, or return the answer that is stored.

        `caller` is the authenticated customer, `key` what the caller sent, `fingerprint` what the same request has in
        common with its repetitions: its body. `repeat`: "safe" runs the work again after a crash; "never" raises
        UnknownOutcome then, until an operator decides. `wait`: seconds for the answer of another caller.

        An exception of `work` is not stored, and the next caller runs it; with repeat="never" only after `Refused`.
        """
        begun = await self.begin(
            caller=caller, source=source, key=key, fingerprint=fingerprint, repeat=repeat, wait=wait
        )
        if isinstance(begun, Outcome):
            return begun
        try:
            answer = await work(begun)
        except BaseException as error:
            await self.fail(begun, error)
            raise
        return await self.finish(begun, answer)

    # ── in three steps, for work that is not one function ──

    async def begin(
        self,
        *,
        caller: str | bytes,
        source: str | bytes,
        key: str | bytes,
        fingerprint: str | bytes,
        repeat: Literal["safe", "never"],
        wait: float = 0.0,
    ) -> Lease | Outcome[Any]:
        """Return the lease, or the stored answer. `finish` or `fail` must follow a lease."""
        if repeat not in ("safe", "never"):
            raise ConfigError(f"repeat={repeat!r}: it must be 'safe' (run again after a crash) or 'never'")
        if repeat == "never" and self._away == "open":
            raise ConfigError("repeat='never' needs away='closed': without Redis the work would run without a guard")
        named = make_key(self._prefix, caller, source, key)
        token, mark = secrets.token_bytes(TOKEN_BYTES), fingerprint_of(fingerprint)
        marker = bytes(started(named, token, mark)) if repeat == "never" else b""
        found = await self._claim(Claim(named, token, mark, marker), wait)
        return found if isinstance(found, Lease) else self._stored(named, mark, found)

    async def finish(self, lease: Lease, answer: T) -> Outcome[T]:
        """Store the answer; completes even if the caller is cancelled."""
        return await self._complete(self._finish(lease, answer))

    async def fail(self, lease: Lease, error: BaseException) -> None:
        """Release the key after work that raised `error`; completes even if the caller is cancelled."""
        await self._complete(self._release(lease, did_nothing=isinstance(error, Refused)))

    # ── for operators ──

    async def look(self, *, caller: str | bytes, source: str | bytes, key: str | bytes) -> Status:
        """Return what Redis has about a key."""
        return await self._operator.look(make_key(self._prefix, caller, source, key))

    def unknown(self) -> AsyncIterator[Status]:
        """Yield the keys whose work started, must not be repeated, and has no known outcome. Scans all of Redis."""
        return self._operator.unknown()

    async def clear(self, status: Status) -> None:
        """Let the next caller run the work, because it did not happen; WrongState if it changed since `look`."""
        await self._operator.clear(status)

    async def resolve(self, status: Status, answer: T) -> None:
        """Give this answer to duplicates, because the work happened; WrongState if it changed since `look`."""
        await self._operator.resolve(status, answer)

    # ── the transitions ──

    async def _claim(self, claim: Claim, wait: float) -> Lease | Record:
        deadline, seen = time.monotonic() + wait, False
        while True:
            since = time.monotonic()
            try:
                found = await self._commands.claim(claim)
            except GuardUnavailable as error:
                # Another caller runs the work: it must not run here without a guard.
                return self._while_away(claim, error, since, may_run=not seen)
            except asyncio.CancelledError:
                self._forget(claim)
                raise
            if found is None:
                return self._leased(claim, since, guarded=True)
            if isinstance(found, Record):
                return found
            _check_fingerprint(claim.key, found.fingerprint, claim.fingerprint)
            seen = True
            record = await self._waiting.wait(claim.key, deadline - time.monotonic())
            if record is not None:
                return record

    def _while_away(self, claim: Claim, error: GuardUnavailable, since: float, *, may_run: bool) -> Lease:
        if self._away == "open" and may_run:
            self._log.warning("the work of %s runs without a guard: %s", claim.key, error)
            return self._leased(claim, since, guarded=False)
        self._forget(claim)
        raise error

    def _forget(self, claim: Claim) -> None:
        """Release the key, without waiting: Redis may have executed a claim whose answer did not arrive."""
        self._in_background(self._commands.release(claim, did_nothing=True))

    def _leased(self, claim: Claim, since: float, *, guarded: bool) -> Lease:
        lease = Lease(self._commands, claim, seconds=self._lease, guarded=guarded, since=since)
        lease.start()
        return lease

    def _stored(self, key: Key, fingerprint: bytes, record: Record) -> Outcome[Any]:
        _check_fingerprint(key, record.fingerprint, fingerprint)
        if record.started:
            raise UnknownOutcome(
                f"the work of {key} started and its outcome is unknown: its process died or lost Redis, and it must "
                "not be repeated; find out what happened, then clear or resolve it"
            )
        answer = record.answer()
        if isinstance(answer, Unstorable):
            raise BadResult(f"the work of {key} ended and its answer was not stored: {answer.reason}")
        return Outcome(answer, repeated=True)

    async def _finish(self, lease: Lease, answer: T) -> Outcome[T]:
        await lease.stop()
        claim = lease.claim
        state, payload = encode(answer, self._max_bytes)
        try:
            kept = await self._store(lease, Record(state, claim.token, claim.fingerprint, payload))
        except GuardUnavailable as error:
            self._log.warning("the answer of %s was not stored: %s", claim.key, error)
            if self._away == "open":
                return Outcome(answer, repeated=False, guarded=lease.guarded, stored=False)
            message = f"the work of {claim.key} ran and its answer was not stored: {error}"
            raise NotStored(message, answer=answer) from error
        if state == b"X":
            raise BadResult(f"the work of {claim.key} ended and its answer was not stored: {reason(payload)}")
        if not kept and lease.guarded:
            raise ClaimLost(
                f"the lease of {claim.key} was lost while its work ran: another caller has the key, and the work may "
                "have run twice; call again for the answer that is kept"
            )
        if not kept:
            self._log.warning("the work of %s ran without a guard, and another caller ran it too", claim.key)
        return Outcome(answer, repeated=False, guarded=lease.guarded, stored=kept)

    async def _store(self, lease: Lease, record: Record) -> bool:
        delays = STORE_DELAYS if lease.guarded else STORE_DELAYS[:1]  # Redis was away before: one attempt says enough
        for delay in delays:
            await asyncio.sleep(delay)
            try:
                return await self._commands.finish(lease.claim, record)
            except GuardUnavailable as error:
                failure = error
        raise failure

    async def _release(self, lease: Lease, *, did_nothing: bool) -> None:
        await lease.stop()
        try:
            await self._commands.release(lease.claim, did_nothing=did_nothing)
        except GuardUnavailable as error:
            self._log.warning("%s is released only when its lease expires: %s", lease.claim.key, error)

    async def _complete(self, step: Coroutine[Any, Any, R]) -> R:
        return await asyncio.shield(self._in_background(step))

    def _in_background(self, step: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.create_task(step, name="hookledger-redis-guard")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # so that asyncio does not log what the caller, who has left, cannot see


def _check_fingerprint(key: Key, known: bytes, given: bytes) -> None:
    if known != given:
        raise KeyConflict(f"{key} was used before with another request: a new request needs a new key")


def _check_client(client: Any) -> None:
    encoder = getattr(client, "get_encoder", None)
    if not hasattr(client, "execute_command"):
        raise ConfigError(f"{client!r} is not a client of Redis: pass a redis.asyncio.Redis")
    if isinstance(client, redis.Redis | redis.RedisCluster):
        raise ConfigError(
            f"{type(client).__module__}.{type(client).__name__} is a blocking client: pass a redis.asyncio.Redis, "
            "and for plain functions use a BlockingGuard"
        )
    if encoder is not None and encoder().decode_responses:
        raise ConfigError("the client has decode_responses=True: answers are bytes; give the guard its own client")
