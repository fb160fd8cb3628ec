"""What an ack costs while every finished event is being pruned, on PostgreSQL: a part of `benchmarks.operate`.

A steady load goes to a real receiver all the time. `hookledger prune` runs in a process of its own, which is stopped
and let go by turns, so that a machine that slows down slows both figures. Afterwards deliveries of pruned events are
sent again: each must be answered as a duplicate. Then the books are asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
import uvloop
from tests.services.ports import free_port
from tests.services.postgres import Databases

from benchmarks.intake import SECRET
from benchmarks.load import _BODY
from benchmarks.servers import ROOT, Postgresql, Server
from hookledger.clock import Clock
from hookledger.store.connect import connect

SAMPLE = 200
"""Events that came in by HTTP before, and come again afterwards."""
TURNS = {"without": 2.0, "with": 5.0}
"""Seconds that the pruning rests, and runs."""
SETTLE = 0.5
"""Seconds after each change that count for neither."""

FILL = """
CREATE TEMP TABLE filling AS SELECT n,
    (lpad(to_hex(1700000000000 + n), 12, '0') || '7' || substr(md5('a' || n), 1, 3) || '8'
     || substr(md5('b' || n), 1, 15))::uuid AS id,
    (lpad(to_hex(1700000000000 + n), 12, '0') || '7' || substr(md5('c' || n), 1, 3) || '8'
     || substr(md5('d' || n), 1, 15))::uuid AS rid,
    sha256(n::text::bytea) AS fp, to_timestamp(1700000000 + n * 0.001) AS t
FROM generate_series(1, {events}) AS n;
INSERT INTO hookledger.identities (identity, kind, source, event_id, fingerprint)
SELECT fp, 'key', 'stripe', id, fp FROM filling;
INSERT INTO hookledger.requests (id, source, received_at, query, headers, body, scheme, secret)
SELECT rid, 'stripe', t, '', 'content-type: application/json', repeat(md5(n::text), 36)::bytea, 'hmac', 'f'
FROM filling;
INSERT INTO hookledger.events (id, source, type, key, key_origin, fingerprint, request_id, item, received_at,
    run_started_at, state, claim, attempts, first_processed_at, finished_at)
SELECT id, 'stripe', 'invoice.paid', 'evt_old_' || n, 'signed_id', fp, rid, 0, t, t, 'processed', 2, 1, t, t
FROM filling;
INSERT INTO hookledger.deliveries (request_id, item, event_id, source, received_at, outcome, fingerprint)
SELECT rid, 0, id, 'stripe', t, 'accepted', fp FROM filling;
INSERT INTO hookledger.attempts (event_id, claim, run, worker, started_at, ended_at, outcome)
SELECT id, 1, 1, 'w', t, t, 'processed' FROM filling;
INSERT INTO hookledger.effects (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest,
    downstream, state, planned_at, created_at, finished_at)
SELECT sha256(fp), 'once', 'stripe', 'credit', 'evt_old_' || n, id, 1, '{{}}', '', '', 'done', t, t, t
FROM filling WHERE n % 2 = 0;
DROP TABLE filling
"""
FINISH = """
WITH done AS (UPDATE hookledger.events SET state = 'processed', claim = 2, attempts = 1, due_at = NULL,
    first_processed_at = received_at, finished_at = received_at WHERE state = 'pending' RETURNING id)
INSERT INTO hookledger.attempts (event_id, claim, run, worker, started_at, ended_at, outcome)
SELECT id, 1, 1, 'w', now(), now(), 'processed' FROM done
"""
NAME = "pruning"
RESTING = f"""
SELECT bool_and(state = 'idle' AND query = 'COMMIT') FROM pg_stat_activity
WHERE application_name = '{NAME}' AND datname = current_database()
"""


PAID = "invoice.paid"


def request(port: int, ident: str, kind: str = PAID) -> bytes:
    """One signed delivery; the same content for the same id, whenever it is sent."""
    now = int(time.time())
    body = (_BODY % {"id": ident, "created": 1_700_000_000, "amount": 100}).replace(PAID, kind).encode()
    mac = hmac.new(SECRET.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    head = (
        f"POST /stripe HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Stripe-Signature: t={now},v1={mac}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """Connections that are kept, one request at a time on each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, ident: str, kind: str = PAID) -> int:
        """The status. A connection that was closed because nobody used it is opened again."""
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                break
            writer.close()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request(self.port, ident, kind))
        head = await reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.partition(b":")[2]))
        self._free.append((reader, writer))
        return int(head.split()[1])


class Load:
    """So many deliveries per second, whatever the answers take: latency counts from when each was due."""

    def __init__(self, client: Client, per_second: float) -> None:
        self._client = client
        self._per_second = per_second
        self._sending: set[asyncio.Task[None]] = set()
        self._names = (f"load_{os.getpid()}_{number}" for number in itertools.count())
        self.phase: str | None = None
        self.latencies: dict[str, list[float]] = {"without": [], "with": []}
        self.statuses: Counter[int] = Counter()

    @property
    def unanswered(self) -> int:
        return len(self._sending)

    async def run(self) -> None:
        begun, number = time.perf_counter(), 0
        while True:
            due = begun + number / self._per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(self._one(due))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            number += 1

    async def _one(self, due: float) -> None:
        phase = self.phase
        self.statuses[await self._client.send(next(self._names))] += 1
        if phase is not None and phase == self.phase:
            self.latencies[phase].append(time.perf_counter() - due)


async def measure(load: Load, prune: subprocess.Popen[bytes], url: str, limit: float) -> None:
    """By turns, until the pruning has ended."""
    ends = time.monotonic() + limit
    connection = await asyncpg.connect(url)
    while prune.poll() is None and time.monotonic() < ends:
        for phase, seconds in TURNS.items():
            load.phase = None
            await halt(prune, connection) if phase == "without" else tell(prune, signal.SIGCONT)
            await asyncio.sleep(SETTLE)
            load.phase = phase
            await asyncio.sleep(seconds)
            if phase == "with" and prune.poll() is not None:
                break
    load.phase = None
    await connection.close()


async def halt(prune: subprocess.Popen[bytes], connection: asyncpg.Connection[Any]) -> None:
    """Stop it between two transactions: it rests as long as its last one took, a stop within that included."""
    for _ in range(200):
        tell(prune, signal.SIGSTOP)
        await asyncio.sleep(0.02)  # what it asked for last is done by then
        if await connection.fetchval(RESTING) or prune.poll() is not None:
            return
        tell(prune, signal.SIGCONT)
        await asyncio.sleep(0.03)
    tell(prune, signal.SIGSTOP)


def tell(prune: subprocess.Popen[bytes], order: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        prune.send_signal(order)


@dataclass(frozen=True)
class Found:
    """What was measured, and whether it was right."""

    events: int
    per_second: float
    took: float
    pruned: dict[str, Any] | None
    """What the pruning says it did; None when it was broken off."""
    without: list[float]
    during: list[float]
    statuses: Counter[int]
    again: Counter[int]
    """Answers to pruned events that were sent again: 200 means that it was no new one."""
    deliveries: dict[str, int]
    kept: int
    buried: int
    imbalances: list[str]

    @property
    def is_sound(self) -> bool:
        return self.pruned is not None and not self.imbalances and set(self.again) == {200}

    def lines(self) -> list[list[str]]:
        table = []
        for name, share in (("ack, median", 0.5), ("ack, p99", 0.99)):
            before, after = percentile(self.without, share), percentile(self.during, share)
            table.append([name, f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"])
        return [*table, ["acks measured", f"{len(self.without):,}", f"{len(self.during):,}", ""]]

    def notes(self) -> list[str]:
        ended = "to the end" if self.pruned is not None else "BROKEN OFF"
        return [
            f"{self.events:,} finished events with {self.per_second:g} deliveries a second on top, pruned {ended} in "
            f"{self.took:.0f} s, rests included; it rests {TURNS['without']:g} s, then runs {TURNS['with']:g} s",
            f"answers {dict(self.statuses)}; pruned events sent again: {dict(self.again)} (200: no new one)",
            f"the books: {self.kept:,} kept, {self.buried:,} pruned, deliveries {self.deliveries}, "
            f"imbalances {self.imbalances or 'none'}",
            f"the pruning says: {json.dumps(self.pruned)}",
        ]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


async def measured(url: str, port: int, config: list[str], events: int, per_second: float, limit: float) -> Found:
    client = Client(port)
    first = Counter([await client.send(f"sample_{n}") for n in range(SAMPLE)])
    assert first == {202: SAMPLE} or first == {200: SAMPLE}, first
    Databases(url).execute(FINISH)
    begun = time.monotonic()
    await fill(url, events)
    print(f"filled {events:,} events in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    load = Load(client, per_second)
    running = asyncio.create_task(load.run())
    await asyncio.sleep(3.0)
    command = [sys.executable, "-m", "hookledger", "prune", "--now", "--json", *config]
    command[-1] += f"?application_name={NAME}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    begun = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as prune:
        await measure(load, prune, url, limit)
        tell(prune, signal.SIGCONT)
        ended = prune.poll() is not None
        if not ended:
            prune.terminate()
        output = prune.communicate()[0]
    took = time.monotonic() - begun
    running.cancel()
    await asyncio.sleep(1.0)
    again = Counter([await client.send(f"sample_{n}") for n in range(SAMPLE)])
    store = connect(url, clock=Clock())
    await store.open()
    books = await store.consistency.report()
    outcomes = await store.delivery_counts()
    await store.close()
    return Found(
        events,
        per_second,
        took,
        json.loads(output) if ended else None,
        load.latencies["without"],
        load.latencies["with"],
        load.statuses,
        again,
        outcomes,
        books.kept,
        books.pruned,
        [str(odd) for odd in books.imbalances],
    )


async def fill(url: str, events: int) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(FILL.format(events=events))
    await connection.execute("ANALYZE")
    await connection.close()


def run(server: Postgresql, events: int, *, per_second: float = 100.0, limit: float = 540.0) -> Found:
    """Against a receiver and a database of its own; the pruning is broken off after so many seconds."""
    with server.database() as url:
        port = free_port()
        config = ["--config", str(ROOT / "benchmarks" / "prune.toml"), "--database", url]
        command = [sys.executable, "-m", "hookledger"]
        listen = ["--port", str(port), "--operator-port", str(free_port())]
        receiver = Server(
            [*command, "receive", "--log-level", "error", *listen, *config],
            port,
            prepare=[[*command, "migrate", *config]],
            path="/stripe",
        )
        with receiver.running(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measured(url, port, config, events, per_second, limit))
