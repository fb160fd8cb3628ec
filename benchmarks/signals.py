"""What metrics and rates cost receiver and worker: pairs of runs, on and off.

    python -m benchmarks.signals                 # nine pairs of each, on both stores
    python -m benchmarks.signals --quick         # does it run at all

On: `--monitor`, scraped every second, and the counts of the process written to the database for charts. Off: neither.
Counting itself is in both; benchmarks/counting.py measures it. The runs of a pair follow each other, first the one,
then the other; the ratio is the median of the pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from tests.services.ports import free_port

from benchmarks import intake, report, work
from benchmarks.servers import granian

RATES = "BENCHMARK_RATES"
"""`off`: intake.py and work_app.py set `[monitor] rates = false`."""
MONITOR = "HOOKLEDGER_MONITOR"
GOAL = 0.97
EVERY = 1.0
"""Seconds between two scrapes."""


@contextmanager
def signals(on: bool) -> Iterator[None]:
    """Processes started within have signals, or none."""
    os.environ[RATES] = "on" if on else "off"
    if not on:
        yield
        return
    address = f"127.0.0.1:{free_port()}"
    os.environ[MONITOR] = address
    over = threading.Event()
    scraper = threading.Thread(target=_scrape, args=(f"http://{address}/metrics", over), daemon=True)
    scraper.start()
    try:
        yield
    finally:
        del os.environ[MONITOR]
        over.set()
        scraper.join()


def _scrape(url: str, over: threading.Event) -> None:
    while not over.wait(EVERY):
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            answer.read()


def accepted(room: intake.Room, target: intake.Target, seconds: float) -> float:
    run = partial(intake.measure, target, room, seconds=seconds, warmup=1.0, connections=64)
    return intake.calmest(2, run).rate


def pairs(count: int, run: Callable[[], float], name: str) -> list[str]:
    """One line of the table."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(count):
        for on in (False, True) if number % 2 else (True, False):
            with signals(on):
                rates[on].append(run())
        print(f"{name}: off {rates[False][-1]:,.0f}/s, on {rates[True][-1]:,.0f}/s", file=sys.stderr)
    ratios = [one / other for one, other in zip(rates[True], rates[False], strict=True)]
    ratio = statistics.median(ratios)
    medians = f"{statistics.median(rates[False]):,.0f}", f"{statistics.median(rates[True]):,.0f}"
    verdict = "met" if ratio >= GOAL else "MISSED"
    return [name, *medians, f"{ratio:.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}", f"≥ {GOAL}: {verdict}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.signals", description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a run of the receiver")
    parser.add_argument("--events", type=int, default=12_000, help="of a run of the worker")
    parser.add_argument("--quick", action="store_true", help="one pair of short runs: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.pairs, options.seconds, options.events = 1, 1.0, 1600
    with ExitStack() as stack:
        room = intake.Room(stack, granian)
        targets = {target.name: target for target in intake.TARGETS}
        runs: dict[str, Callable[[], float]] = {
            "receiver, PostgreSQL": partial(accepted, room, targets["postgres"], options.seconds),
            "receiver, SQLite": partial(accepted, room, targets["sqlite"], options.seconds),
            "worker, PostgreSQL": partial(work.rate_on_postgres, room.postgresql, "rows", options.events),
            "worker, SQLite": partial(work.rate_on_sqlite, room.postgresql, "rows", options.events),
        }
        lines = [pairs(options.pairs, run, name) for name, run in runs.items()]
        notes = report.machine(room.postgresql_version)
    head = ["process", "off, events/s", "on", "ratio", "of pairs", "stated target"]
    notes.append(f"{options.pairs} pairs of {options.seconds:g} s, or of {options.events:,} events, one process each")
    print(report.markdown(head, lines, notes)) if options.markdown else report.show(head, lines, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
