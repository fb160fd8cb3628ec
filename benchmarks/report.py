"""What a measurement says: medians, spread, ratios, and the machine it was made on."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import Result, others_seconds

FSYNCS = 200
DISTURBED = 0.15  # cores somebody else had, on this machine or its host: above it a run says little


@dataclass(frozen=True)
class Goal:
    """A target is to reach at least so many times the rate of a peer."""

    peer: str
    ratio: float


@dataclass(frozen=True)
class Row:
    """All runs of one target."""

    name: str
    label: str
    runs: Sequence[Result]
    goals: Sequence[Goal] = ()

    @property
    def rate(self) -> float:
        return statistics.median(run.rate for run in self.runs)

    @property
    def spread(self) -> tuple[float, float]:
        return min(run.rate for run in self.runs), max(run.rate for run in self.runs)

    def median(self, figure: str) -> float:
        return statistics.median(float(getattr(run, figure)) for run in self.runs)

    def cpu(self, name: str) -> float:
        return statistics.median(run.cpu.get(name, 0.0) for run in self.runs)

    @property
    def failures(self) -> int:
        """Answers other than 2xx, and errors."""
        return sum(
            sum(run.errors.values()) + sum(n for kind, n in run.statuses.items() if kind != "2xx")
            for run in self.runs
        )

    @property
    def disturbed(self) -> int:
        return sum(disturbance(run) > DISTURBED for run in self.runs)


def disturbance(run: Result) -> float:
    """Cores that neither the load nor its target had, though they might have wanted them."""
    return run.cpu.get("others", 0.0) + run.cpu.get("stolen", 0.0)


class Watch:
    """How much of the machine others had since it began: neither this process nor what it started, PostgreSQL too."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), others_seconds()

    def words(self) -> str:
        cores = max(0.0, (others_seconds() - self._before) / (time.monotonic() - self._begun))
        verdict = "disturbed" if cores > DISTURBED else "not disturbed"
        load = os.getloadavg()[0]
        return f"{verdict}: others here or on the host had {cores:.2f} cores; load {load:.1f} at the end"


def cells(rows: Sequence[Row], peers: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The table as text: a head, and one line per target."""
    rates = {row.name: row.rate for row in rows}
    shown = [peer for peer in peers if peer in rates]
    head = ["target", "req/s", "min-max", "p50 ms", "p99 ms", *(f"ratio to {peer}" for peer in shown)]
    head += ["stated target", "CPU load", "CPU server", "CPU store", "failures", "disturbed runs"]
    lines = []
    for row in rows:
        low, high = row.spread
        lines.append(
            [
                row.name,
                f"{row.rate:,.0f}",
                f"{low:,.0f}-{high:,.0f}",
                f"{row.median('p50_ms'):.1f}",
                f"{row.median('p99_ms'):.1f}",
                *(f"{row.rate / rates[peer]:.2f}" for peer in shown),
                "; ".join(_verdict(goal, row.rate, rates) for goal in row.goals) or "none",
                f"{row.cpu('load'):.2f}",
                f"{row.cpu('server'):.2f}",
                f"{row.cpu('postgres') + row.cpu('valkey'):.2f}",
                str(row.failures),
                f"{row.disturbed} of {len(row.runs)}",
            ]
        )
    return head, lines


def _verdict(goal: Goal, rate: float, rates: Mapping[str, float]) -> str:
    stated = f"≥ {goal.ratio:g} times {goal.peer}"
    if goal.peer not in rates:
        return f"{stated}: not measured"
    return f"{stated}: {'met' if rate >= goal.ratio * rates[goal.peer] else 'MISSED'}"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    table = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    text = "\n".join("| " + " | ".join(line) + " |" for line in table)
    return text + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def show(head: Sequence[str], lines: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    """Print for a person: with rich where it is installed, else as Markdown."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(markdown(head, lines, notes))
        return
    table = Table()
    for index, title in enumerate(head):
        table.add_column(title, justify="right" if index else "left")
    for line in lines:
        table.add_row(*line)
    console = Console(width=max(160, Console().width), highlight=False)
    console.print(table)
    for note in notes:
        console.print(f"• {note}")


def machine(postgresql: str | None) -> list[str]:
    """The facts without which the figures mean nothing."""
    directory = tempfile.gettempdir()
    median, worst = fsync_latency(directory)
    return [
        f"{os.cpu_count()} cores, {_cpu_model()}, {platform.system()} {platform.release()}",
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"PostgreSQL {postgresql or 'not used'}, SQLite {_sqlite_version()}",
        f"write + fsync of 4 KiB on {_filesystem(directory)}: median {median * 1e3:.2f} ms, "
        f"p99 {worst * 1e3:.2f} ms, over {FSYNCS} calls",
    ]


def fsync_latency(directory: str) -> tuple[float, float]:
    """Median and p99, in seconds, of appending one page and syncing it, where the databases lie."""
    page, took = os.urandom(4096), []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(FSYNCS):
            started = time.perf_counter()
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - started)
    took.sort()
    return statistics.median(took), took[int(0.99 * len(took))]


def _sqlite_version() -> str:
    """Of the library our store uses; without it, of Python's own."""
    try:
        import apsw
    except ImportError:
        import sqlite3

        return f"{sqlite3.sqlite_version} (Python's)"
    return f"{apsw.sqlite_lib_version()} (apsw)"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown")


def _filesystem(directory: str) -> str:
    """The type of the file system: on tmpfs, fsync costs nothing and the figures would flatter everyone."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    holding = [(point, kind) for point, kind in mounts if Path(directory).resolve().is_relative_to(point)]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else "an unknown file system"
