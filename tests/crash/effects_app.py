"""An application that uses every kind of effect with every policy, and kills itself where it is told to.

Each effect is an HTTP call to the sink. Handlers of `call.POLICY` and `later.POLICY` perform one effect whose key is
in the event's body, and write one row into a business table without a unique constraint: what happens twice is seen
twice. `bundle` plans the effects of all policies, and does one thing `once`, in one transaction.

With CRASH_AT, the process kills itself (SIGKILL) when all the effects that CRASH_ALL lists have reached that point:
each waits there for the last one. Once: in the next life the marker file CRASH_MARKER is there, and nothing is done.
With CRASH_AT="stopped when started" it stops itself instead (SIGSTOP), and goes on when it is let.
"""

import asyncio
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import httpx2

from hookledger import Effect, Event, Happened, Inbox, Op, RetryPolicy, Seconds
from hookledger.effects.caller import Calls
from hookledger.store.postgres.ledger import PostgresLedger
from hookledger.store.sqlite.ledger import SqliteLedger
from tests.services.sink import path

SECRET = "whsec_crash_tests_effects_secret"  # made up
BUSINESS = "CREATE TABLE business (what text NOT NULL, key text NOT NULL, result text)"
WRITE = "INSERT INTO business (what, key, result) VALUES ($1, $2, $3)"

SINK = os.environ.get("SINK", "")
NO_EVENTS = os.environ.get("NO_EVENTS", "")
"""Where nobody listens."""

KINDS = ("call", "later")
TIMEOUT = 3.0
GRACE = 0.5
BRIEF = TIMEOUT + 2.0
"""A window that is over before a crash or a time-out is noticed."""
POLICIES: dict[str, dict[str, Any]] = {
    "safe": {"repeat": "safe"},
    "keyed": {"repeat": "keyed", "window": "60s"},
    "brief": {"repeat": "keyed", "window": BRIEF},
    "accept": {"repeat": "accept"},
    "never": {"repeat": "never"},
    "checked": {"repeat": "never"},
    "ensure": {},
    # For the frozen worker only.
    "stubborn": {"repeat": "never"},
    "patient": {"repeat": "never", "timeout": 60.0},
}
CHECKED = ("checked", "ensure")
MATRIX = [policy for policy in POLICIES if policy not in ("stubborn", "patient")]
EFFECTS = [f"{kind}_{policy}" for kind in KINDS for policy in MATRIX]

inbox = Inbox()
shop = inbox.source("shop", provider="stripe", secrets=[SECRET])


# ── where to die ─────────────────────────────────────────────────────────────


class Crash:
    """Kills the process when everything expected has arrived at the point."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._marker = Path(environment.get("CRASH_MARKER", "/nowhere"))
        self.point = "" if self._marker.exists() else environment.get("CRASH_AT", "")
        self._missing = set(environment.get("CRASH_ALL", "").split())
        self._guard = threading.Lock()

    def arrive(self, *names: str) -> None:
        with self._guard:
            self._missing -= set(names)
            if not self._missing:
                self._marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    def expects(self, kind: str) -> set[str]:
        return {name for name in self._missing if name.startswith(kind)}

    async def stop(self, *names: str) -> None:
        """Each waits for the last one; then the whole process is stopped, and all go on when it does."""
        self._missing -= set(names)
        while self._missing:
            await asyncio.sleep(0.01)
        if not self._marker.exists():
            with without_write_lock():
                self._marker.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            await asyncio.sleep(0.01)  # the signal is not always there when kill returns

    async def reach(self, point: str, *names: str) -> None:
        if point == self.point:
            self.arrive(*names)
            await asyncio.sleep(60)

    def reach_plainly(self, point: str, *names: str) -> None:
        if point == self.point:
            self.arrive(*names)
            time.sleep(60)


@contextmanager
def without_write_lock() -> Iterator[None]:
    """At a moment when no thread of ours, the heartbeat's, holds SQLite's write lock."""
    if not (url := os.environ["HOOKLEDGER_DATABASE"]).startswith("sqlite:///"):
        yield
        return
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(5_000)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


crash = Crash(dict(os.environ))


def _before_started() -> None:
    """In the ledger: before `started` is written, for a call; before the outbox claims anything, for the others."""
    real = Calls._start

    async def start(self: Calls, intent: Any) -> Any:
        await crash.reach("before started", intent.name)
        return await real(self, intent)

    Calls._start = start  # type: ignore[method-assign]
    for ledger in (SqliteLedger, PostgresLedger):
        _nothing_is_claimed(ledger, lambda due: crash.arrive(*due))


def _nothing_is_claimed(ledger: Any, tell: Callable[[Collection[str]], None]) -> None:
    async def claim(self: Any, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Any]:
        if due := await self.due([name for name, _, _ in wanted]):
            tell(due)
        return []

    ledger.claim = claim


def _stopped_when_started() -> None:
    """`started` is committed, and whoever asked for it has not been told yet."""
    real = Calls._start

    async def start(self: Calls, intent: Any) -> Any:
        found = await real(self, intent)
        await crash.stop(intent.name)
        return found

    Calls._start = start  # type: ignore[method-assign]

    def patch(ledger: Any) -> None:
        real = ledger.claim

        async def claim(self: Any, worker: str, wanted: Sequence[tuple[str, int, float]]) -> list[Any]:
            due = await self.due([name for name, _, _ in wanted])
            if not crash.expects("later") <= due:
                return []
            found: list[Any] = await real(self, worker, wanted)
            if found:
                await crash.stop(*(effect.name for effect in found))
            return found

        ledger.claim = claim

    for ledger in (SqliteLedger, PostgresLedger):
        patch(ledger)


def _after_done() -> None:
    """For the outbox: `done` is written. For a call the handler says so."""

    def patch(ledger: Any) -> None:
        real = ledger.finish

        async def finish(self: Any, completions: Sequence[Any]) -> Any:
            concluded = await real(self, completions)
            effects = [await self.get(completion.identity) for completion in completions]
            done = [effect.name for effect in effects if effect.state == "done"]
            crash.arrive(*(name for name in done if name.startswith("later")))
            return concluded

        ledger.finish = finish

    for ledger in (SqliteLedger, PostgresLedger):
        patch(ledger)


def _after_outcome() -> None:
    """What handlers planned is not looked at; whoever started us sees when all is committed, and kills us."""
    for ledger in (SqliteLedger, PostgresLedger):
        _nothing_is_claimed(ledger, lambda due: None)


{
    "before started": _before_started,
    "stopped when started": _stopped_when_started,
    "after done": _after_done,
    "after outcome": _after_outcome,
}.get(crash.point, lambda: None)()


# ── the effects ──────────────────────────────────────────────────────────────


class RemoteError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"the remote answered {status}")
        self.status = status


_tried: set[str] = set()


def _base(op: Op) -> str:
    # Not by the number of the call: a busy machine may begin the first too late, and not send it then.
    if op.effect_key != "refused" or op.name in _tried:
        return SINK
    _tried.add(op.name)
    return NO_EVENTS


async def perform(op: Op, note: str) -> str:
    await crash.reach("after started", op.name)
    async with httpx2.AsyncClient(timeout=None, verify=False) as client:
        url = _base(op) + path(op.name, op.effect_key)
        answer = await client.post(url, json=note, headers={"Idempotency-Key": op.key})
    answer.raise_for_status()
    await crash.reach("after call", op.name)
    result: str = answer.json()["result"]
    return result


def perform_plainly(op: Op, note: str) -> str:
    crash.reach_plainly("after started", op.name)
    status, content = _ask(_base(op), "POST", op, json.dumps(note), {"Idempotency-Key": op.key})
    if status >= 400:
        raise RemoteError(status)
    crash.reach_plainly("after call", op.name)
    result: str = content["result"]
    return result


async def look_up(op: Op, note: str) -> Happened | bool:
    status, content = await asyncio.to_thread(_ask, SINK, "GET", op)
    return Happened(content["result"]) if status == 200 else False


def look_up_plainly(op: Op, note: str) -> Happened | bool:
    status, content = _ask(SINK, "GET", op)
    return Happened(content["result"]) if status == 200 else False


def _ask(base: str, method: str, op: Op, body: str = "", headers: dict[str, str] | None = None) -> tuple[int, Any]:
    where = urlsplit(base)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    try:
        connection.request(method, path(op.name, op.effect_key), body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def plain(kind: str, policy: str) -> bool:
    """Every second is a plain function, and of the two kinds of one policy exactly one."""
    return (list(POLICIES).index(policy) + KINDS.index(kind)) % 2 == 1


def declare(kind: str, policy: str) -> Effect[Any, Any]:
    quick = RetryPolicy(initial_delay=Seconds("50ms"), max_delay=Seconds("200ms"))
    options = {"name": f"{kind}_{policy}", "timeout": TIMEOUT, "grace": GRACE, "retry": quick, **POLICIES[policy]}
    declaring = inbox.ensure(**options) if policy == "ensure" else inbox.effect(**options)
    effect: Effect[Any, Any] = declaring(perform_plainly if plain(kind, policy) else perform)
    if policy in CHECKED:
        effect.check(look_up_plainly if plain(kind, policy) else look_up)
    return effect


effects = {(kind, policy): declare(kind, policy) for kind in KINDS for policy in POLICIES}


# ── the handlers ─────────────────────────────────────────────────────────────


def business_key(event: Event) -> str:
    key: str = event.json["data"]["object"]["id"]
    return key


def handle_call(policy: str) -> None:
    effect = effects["call", policy]

    @shop.on(f"call.{policy}")
    async def handle(event: Event) -> str:
        key = business_key(event)
        result: str = await event.call(effect, key, key)
        await crash.reach("after done", effect.name)
        await event.tx.execute(WRITE, effect.name, key, result)
        return result


def handle_later(policy: str) -> None:
    effect = effects["later", policy]

    @shop.on(f"later.{policy}")
    async def handle(event: Event) -> None:
        key = business_key(event)
        await event.later(effect, key, key)
        await event.tx.execute(WRITE, effect.name, key, "planned")


for policy in POLICIES:
    handle_call(policy)
    handle_later(policy)


@shop.on("once")
async def once(event: Event) -> None:
    await crash.reach("before started", "once")
    if await event.once("credit", business_key(event)):
        await event.tx.execute(WRITE, "once", business_key(event), "credited")


@shop.on("bundle")
async def bundle(event: Event) -> None:
    key = business_key(event)
    if await event.once("credit", key):
        await event.tx.execute(WRITE, "once", key, "credited")
    for policy in MATRIX:
        await event.later(effects["later", policy], key, key)
        await event.tx.execute(WRITE, f"later_{policy}", key, "planned")
    await crash.reach("before outcome", "bundle")
