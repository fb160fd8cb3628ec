"""A bounded load generator that talks to loopback only, in a process of its own.

It shares the machine's cores with the server it measures, so it does as little as it can per request:
every request is signed and laid out as bytes before the clock starts, each connection is one raw
`asyncio.Protocol` under uvloop, and a response is read only as far as its status and its length.

Closed loop: each connection sends its next request when the previous one was answered. The rate is
therefore what the server sustains at this concurrency, and latency includes the server's own queueing.

    python -m benchmarks.load --port 8000 --path /webhooks/stripe --secret whsec_bench
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import ipaddress
import itertools
import json
import os
import secrets
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import uvloop

MAX_CONNECTIONS = 1_024
MAX_REQUESTS = 400_000  # about 700 MB of prepared bytes
MAX_SECONDS = 60.0  # warm-up and measurement together
CONNECT_TIMEOUT = 10.0
FIRST_PASS_TIMEOUT = 60.0
DRAIN_TIMEOUT = 10.0  # for answers still on their way when the time is up

_BODY = (
    '{"id":"evt_%(id)s","object":"event","api_version":"2025-09-30.clover","created":%(created)d,'
    '"data":{"object":{"id":"in_%(id)s","object":"invoice","account_country":"DE",'
    '"account_name":"Example GmbH","amount_due":%(amount)d,"amount_paid":%(amount)d,"amount_remaining":0,'
    '"attempt_count":1,"attempted":true,"auto_advance":false,"billing_reason":"subscription_cycle",'
    '"collection_method":"charge_automatically","created":%(created)d,"currency":"eur",'
    '"customer":"cus_%(id)s","customer_email":"customer-%(id)s@example.com",'
    '"hosted_invoice_url":"https://invoice.example.com/i/%(id)s","lines":{"object":"list","data":['
    '{"id":"il_%(id)s","object":"line_item","amount":%(amount)d,"currency":"eur",'
    '"description":"1 x Team plan (at €49.00 / month)","period":{"end":%(created)d,"start":%(created)d},'
    '"quantity":1,"subscription":"sub_%(id)s"}],"has_more":false,"total_count":1},"livemode":false,'
    '"metadata":{"order":"%(amount)d"},"number":"HL-%(amount)08d","paid":true,"status":"paid",'
    '"subscription":"sub_%(id)s","subtotal":%(amount)d,"tax":null,"total":%(amount)d}},'
    '"livemode":false,"pending_webhooks":1,"request":{"id":null,"idempotency_key":null},'
    '"type":"invoice.paid"}'
)


@dataclass(frozen=True)
class Plan:
    """One bounded run."""

    port: int
    secret: str
    host: str = "127.0.0.1"
    path: str = "/webhooks/stripe"
    connections: int = 64
    requests: int = 100_000
    seconds: float = 5.0
    warmup: float = 2.0
    watch: dict[str, int] = field(default_factory=dict)
    distinct: int = 0
    """So many events, again and again: measured when each was answered once. 0: each request is another event."""

    def __post_init__(self) -> None:
        if not ipaddress.ip_address(self.host).is_loopback:
            raise ValueError(f"{self.host} is not a loopback address; this load never leaves the machine")
        if not 1 <= self.connections <= MAX_CONNECTIONS:
            raise ValueError(f"between 1 and {MAX_CONNECTIONS} connections")
        if not self.connections <= self.requests <= MAX_REQUESTS:
            raise ValueError(f"between one request per connection and {MAX_REQUESTS} requests")
        if not 0 <= self.distinct <= self.requests - self.connections:
            raise ValueError("the requests must hold each distinct event, and more than that")
        if self.seconds <= 0 or self.warmup < 0 or self.seconds + self.warmup > MAX_SECONDS:
            raise ValueError(f"more than 0 and at most {MAX_SECONDS:.0f} seconds, warm-up included")


@dataclass(frozen=True)
class Result:
    """What was seen between the end of the warm-up and the end of the run."""

    rate: float
    completed: int
    accepted: int
    """All 2xx answers, warm-up and drain included: a durable target must own so many rows afterwards."""
    elapsed: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    statuses: dict[str, int]
    """Answers by class ("2xx"), over the measured time."""
    errors: dict[str, int]
    """Refused or lost connections and unreadable answers, warm-up included: one is too many."""
    exhausted: bool
    """The prepared requests ran out before the time did; the rate is still over the time they took."""
    cpu: dict[str, float]
    """Cores used by the load, each watched process tree and the rest of the machine, and cores stolen."""


def signed_requests(plan: Plan) -> list[bytes]:
    """Every request of the run: unique events of about 1.2 kB, signed as Stripe signs them."""
    now = int(time.time())
    run = secrets.token_hex(6)  # two runs against one database must not look like duplicates
    key = hmac.new(plan.secret.encode(), digestmod=hashlib.sha256)
    signed_time = f"{now}.".encode()
    head = (
        f"POST {plan.path} HTTP/1.1\r\nHost: {plan.host}:{plan.port}\r\n"
        "User-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nAccept: */*\r\n"
        "Content-Type: application/json; charset=utf-8\r\n"
        f"Stripe-Signature: t={now},v1=%s\r\nContent-Length: %d\r\n\r\n"
    )
    requests = []
    for number in range(plan.distinct or plan.requests):
        body = (_BODY % {"id": f"{run}{number:08d}", "created": now, "amount": 100 + number}).encode()
        mac = key.copy()
        mac.update(signed_time + body)
        requests.append((head % (mac.hexdigest(), len(body))).encode() + body)
    return list(itertools.islice(itertools.cycle(requests), plan.requests)) if plan.distinct else requests


class Run:
    """The state all connections share."""

    def __init__(self, plan: Plan, requests: Sequence[bytes]) -> None:
        self.plan = plan
        self.take: Iterator[bytes] = iter(requests)
        self.measuring = False
        self.over = False
        self.exhausted = False
        self.latencies = array("d")
        self.statuses: Counter[bytes] = Counter()
        self.accepted = 0
        self.errors: Counter[str] = Counter()
        self.open = 0
        self.idle = asyncio.Event()

    def left(self) -> None:
        self.open -= 1
        if not self.open:
            self.idle.set()


class Connection(asyncio.Protocol):
    """One keep-alive connection: send, read one answer, send the next."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.buffer = b""
        self.sent_at = 0.0
        self.waiting = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        self.run.open += 1

    def send_next(self) -> None:
        run = self.run
        request = None if run.over else next(run.take, None)
        if request is None:
            run.exhausted = run.exhausted or not run.over
            self.waiting = False
            self.transport.close()
            return
        self.waiting = True
        self.sent_at = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.buffer:
            data = self.buffer + data
        end = _answer_length(data)
        if end == _INCOMPLETE:
            self.buffer = data
            return
        if end == _UNREADABLE or len(data) > end:
            self.run.errors["unreadable answer"] += 1
            self.waiting = False
            self.transport.abort()
            return
        self.buffer = b""
        run = self.run
        status_class = data[9:10]
        run.accepted += status_class == b"2"
        if run.measuring:
            run.latencies.append(time.perf_counter() - self.sent_at)
            run.statuses[status_class] += 1
        self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self.run.errors["connection lost"] += 1
        self.run.left()


_INCOMPLETE = -1
_UNREADABLE = -2


def _answer_length(data: bytes) -> int:
    """Where the answer that starts `data` ends. Chunked answers are not read: no target sends them."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return _INCOMPLETE
    if not data.startswith(b"HTTP/1.1 "):
        return _UNREADABLE
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        length = 0 if data[9:12] in (b"204", b"304") else _UNREADABLE
    else:
        stop = head.find(b"\r\n", at + 17)
        length = int(head[at + 17 : stop if stop > 0 else end])
    if length == _UNREADABLE:
        return _UNREADABLE
    total = end + 4 + length
    return total if len(data) >= total else _INCOMPLETE


async def drive(plan: Plan, requests: Sequence[bytes]) -> Result:
    """Run the plan. Ends by itself: at its time, at its last request, or when every connection is gone."""
    loop = asyncio.get_running_loop()
    run = Run(plan, requests)
    async with asyncio.timeout(CONNECT_TIMEOUT):
        connections = [
            (await loop.create_connection(lambda: Connection(run), plan.host, plan.port))[1]
            for _ in range(plan.connections)
        ]
    for connection in connections:
        connection.send_next()
    await _idle_or(run, plan.warmup)
    await _answered_once(run)

    run.measuring = True
    started, cpu_before = time.perf_counter(), _cpu_seconds(plan.watch)
    await _idle_or(run, plan.seconds)
    run.measuring = False
    elapsed, cpu_after = time.perf_counter() - started, _cpu_seconds(plan.watch)

    run.over = True
    if not await _idle_or(run, DRAIN_TIMEOUT):
        run.errors["never answered"] += run.open

    latencies = sorted(run.latencies)
    return Result(
        rate=len(latencies) / elapsed,
        completed=len(latencies),
        accepted=run.accepted,
        elapsed=elapsed,
        p50_ms=_quantile(latencies, 0.50) * 1e3,
        p99_ms=_quantile(latencies, 0.99) * 1e3,
        max_ms=_quantile(latencies, 1.0) * 1e3,
        statuses={f"{digit.decode()}xx": count for digit, count in sorted(run.statuses.items())},
        errors=dict(run.errors),
        exhausted=run.exhausted,
        # The kernel's and the processes' accounts differ by a tick here and there, so "others" may be below 0.
        cpu={name: max(0.0, round((cpu_after[name] - cpu_before[name]) / elapsed, 3)) for name in cpu_before},
    )


async def _answered_once(run: Run) -> None:
    """Wait until each distinct event was answered: what follows are repetitions."""
    if run.plan.distinct:
        async with asyncio.timeout(FIRST_PASS_TIMEOUT):
            while run.accepted < run.plan.distinct + run.plan.connections and run.open:
                await asyncio.sleep(0.01)


async def _idle_or(run: Run, seconds: float) -> bool:
    """Wait until no connection is left, at most so long. True when none is left."""
    try:
        async with asyncio.timeout(seconds):
            await run.idle.wait()
    except TimeoutError:
        return False
    return True


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


def _cpu_seconds(watch: dict[str, int]) -> dict[str, float]:
    """Processor seconds so far (Linux only): this process, each watched tree, everything else on this
    machine, and what the hypervisor gave to other machines while ours had work."""
    seconds = {"load": time.process_time()}
    if not Path("/proc/stat").exists():
        return seconds
    tick = os.sysconf("SC_CLK_TCK")
    for name, pid in watch.items():
        seconds[name] = sum(_process_ticks(member) for member in _tree(pid)) / tick
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = (
        int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    seconds["others"] = (user + nice + system + irq + softirq) / tick - sum(seconds.values())
    seconds["stolen"] = steal / tick
    return seconds


def others_seconds() -> float:
    """Processor seconds so far that neither this process nor its descendants had, the hypervisor's among them."""
    seconds = _cpu_seconds({"tree": os.getpid()})
    # The account above counts this process twice: alone, and as the head of its tree.
    return seconds.get("others", 0.0) + seconds["load"] + seconds.get("stolen", 0.0)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it ended between the listing and the reading
            for child in children.read_text().split():
                yield from _tree(int(child))


def _process_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # it ended between the listing and the reading
        return 0
    return sum(int(part) for part in fields[11:15])  # its own, and that of its children that have ended


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__.split("\n")[0])
    parser.add_argument("--host", default=Plan.host, help="a loopback address; others are refused")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default=Plan.path)
    parser.add_argument("--secret", required=True)
    parser.add_argument("--connections", type=int, default=Plan.connections)
    parser.add_argument("--requests", type=int, default=Plan.requests, help="prepared; the run ends with them")
    parser.add_argument("--seconds", type=float, default=Plan.seconds)
    parser.add_argument("--warmup", type=float, default=Plan.warmup)
    parser.add_argument("--distinct", type=int, default=Plan.distinct, help="repeat so many events; 0: no repetition")
    parser.add_argument("--watch", action="append", default=[], metavar="NAME=PID")
    given = vars(parser.parse_args(arguments))
    given["watch"] = {name: int(pid) for name, _, pid in (item.partition("=") for item in given["watch"])}
    try:
        plan = Plan(**given)
    except ValueError as error:
        parser.error(str(error))
    requests = signed_requests(plan)
    try:
        result = uvloop.run(drive(plan, requests))
    except (OSError, TimeoutError) as error:
        print(f"no connection to {plan.host}:{plan.port}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
