"""What an ack of a plain delivery costs while a handler that answers blocks its process, or kills it.

    python -m benchmarks.blocked                 # three rounds of each, on both stores
    python -m benchmarks.blocked --quick         # does it run at all

500 plain deliveries a second go to a real receiver. By turns nothing else comes; requests whose handler blocks its
event loop for two seconds; requests whose handler kills its process. Latency counts from when a delivery was due.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import uvloop
from tests.services.ports import free_port

from benchmarks import report
from benchmarks.prune import Client, Load, percentile
from benchmarks.servers import Postgresql, Server, postgresql

PER_SECOND = 500.0
TURNS = ("without", "blocks", "dies")
SENDERS = 4
"""Requests at a time whose handlers block, or die."""
SETTLE = 3.0
"""Seconds after each change that count for none: a handler that blocked has ended."""


def receiver(url: str) -> Server:
    port = free_port()
    settings = ["--app", "benchmarks.blocked_app:inbox", "--database", url]
    command = [sys.executable, "-m", "hookledger"]
    listen = ["--port", str(port), "--operator-port", str(free_port()), "--log-level", "error"]
    return Server(
        [*command, "receive", *listen, *settings],
        port,
        {"HOOKLEDGER_DATABASE": url},
        prepare=[[*command, "migrate", *settings]],
    )


async def trouble(client: Client, kind: str, statuses: Counter[str]) -> None:
    """Send such requests one after the other, until cancelled."""
    for number in itertools.count():
        status = await client.send(f"{kind}_{os.getpid()}_{id(client)}_{number}", kind)
        statuses[f"{kind} {status}"] += 1
        await asyncio.sleep(0.05)


async def measured(port: int, rounds: int, seconds: float) -> tuple[Load, Counter[str]]:
    load, statuses = Load(Client(port), PER_SECOND), Counter[str]()
    load.latencies = {turn: [] for turn in TURNS}
    running = asyncio.create_task(load.run())
    for _ in range(rounds):
        for turn in TURNS:
            senders = [] if turn == "without" else [Client(port) for _ in range(SENDERS)]
            tasks = [asyncio.create_task(trouble(client, turn, statuses)) for client in senders]
            await asyncio.sleep(SETTLE)
            load.phase = turn
            await asyncio.sleep(seconds)
            load.phase = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    running.cancel()
    await asyncio.sleep(SETTLE)
    if load.unanswered:
        raise SystemExit(f"{load.unanswered} plain deliveries got no answer")
    return load, statuses


def run(server: Postgresql, rounds: int, seconds: float) -> tuple[list[list[str]], list[str]]:
    table, notes = [], []
    for store in ("PostgreSQL", "SQLite"):
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hookledger-bench-"))
            url = f"sqlite:///{folder}/inbox.db" if store == "SQLite" else stack.enter_context(server.database())
            service = receiver(url)
            stack.enter_context(service.running())
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                load, statuses = runner.run(measured(service.port, rounds, seconds))
        base = [percentile(load.latencies["without"], share) for share in (0.5, 0.99)]
        for turn in TURNS:
            found = load.latencies[turn]
            p50, p99 = (percentile(found, share) for share in (0.5, 0.99))
            cells = [f"{p50:.2f}", f"{p50 / base[0]:.2f}", f"{p99:.2f}", f"{p99 / base[1]:.2f}"]
            table.append([store, turn, str(len(found)), *cells, f"{max(found) * 1000:.0f}"])
        notes.append(f"{store}: plain deliveries were answered {dict(load.statuses)}, the others {dict(statuses)}")
    return table, notes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blocked", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each turn")
    parser.add_argument("--quick", action="store_true", help="one round of two seconds: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds = 1, 2.0
    with postgresql() as server:
        table, notes = run(server, options.rounds, options.seconds)
        notes = [*report.machine(server.version), *notes]
    head = ["store", "handlers", "plain deliveries", "p50 ms", "ratio", "p99 ms", "ratio", "longest ms"]
    notes.append(
        f"{PER_SECOND:g} plain deliveries a second; {SENDERS} senders of the others; {options.rounds} turns of "
        f"{options.seconds:g} s each; latency counts from when a delivery was due"
    )
    print(report.markdown(head, table, notes)) if options.markdown else report.show(head, table, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
