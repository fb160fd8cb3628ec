"""`hookledger top`: sources, rates, lag, failures by cause, circuits and workers on one screen."""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import click
from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..errors import HookledgerError
from ..inbox import Inbox
from ..model import base_source
from ..operate import rates, search
from ..operate.circuits import circuits
from ..operate.context import Context
from ..operate.workers import workers
from ..states import CircuitState
from ..store.ops.circuits import Circuit
from ..store.ops.rates import Rate
from ..store.ops.search import FailureGroup, Lag
from ..store.ops.workers import WorkerInfo
from .common import SafeConsole, inbox_options, run_on, second, table_console
from .failures import duration
from .table import Listing, number, prose

WINDOW = 60
"""Seconds over which rates are averaged."""
STEP = 10
CAUSES = 8
CAUSES_EVERY = 10.0
"""Seconds between two looks for causes, which read up to 20,000 events of each state."""
STRANGERS = "(no source)"


class Frame(Struct, frozen=True):
    """What one screen shows."""

    at: datetime
    sources: Sequence[str]
    rates: Sequence[Rate]
    lag: Sequence[Lag]
    failures: Sequence[FailureGroup]
    circuits: Sequence[Circuit]
    workers: Sequence[WorkerInfo]
    lease: float


class View:
    """Reads frames."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._failures: list[FailureGroup] = []
        self._looked = float("-inf")

    async def frame(self) -> Frame:
        context = self._context
        if time.monotonic() - self._looked > CAUSES_EVERY:
            self._failures = await search.failures(context)
            self._looked = time.monotonic()
        found = await rates.recent(context, WINDOW, STEP)
        return Frame(
            found.until,
            context.sources.names,
            found.rates,
            await search.lag(context),
            self._failures,
            await circuits(context),
            await workers(context),
            context.lease,
        )


@click.command()
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@click.option("--every", type=click.FloatRange(0.5), default=2.0, help="Seconds between two screens.")
@inbox_options
def top(inbox: Inbox, once: bool, every: float) -> None:
    """Show rates, lag, failures and workers live

    \b
    in/s, done/s: new events and processed events a second, over the last minute
    dup, rej, fail: duplicates, rejected requests, failed attempts in that minute
    wait, late: events in the queue, and for how long the first has been due
    ack, delay: 95 % were acknowledged, and had their outcome, within this time

    Rates come from the counts that processes write every ten seconds ([monitor] rates). Ctrl-C ends it.
    """

    async def show(context: Context) -> None:
        view = View(context)
        if once:
            draw(await view.frame(), table_console())
        else:
            await _live(view, every)

    try:
        run_on(inbox, show)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


async def _live(view: View, every: float) -> None:
    screen = SafeConsole(highlight=False)
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            try:
                said = _drawn(await view.frame(), screen.width)
            except HookledgerError as error:  # an outage: the next frame may be there again
                said = SafeConsole().render_str(f"error: {error}", markup=False)
            live.update(said, refresh=True)
            await asyncio.sleep(every)


class _Screen(io.StringIO):
    """A page that is laid out as a terminal is."""

    def isatty(self) -> bool:
        return True


def _drawn(frame: Frame, width: int) -> Text:
    page = _Screen()
    draw(frame, SafeConsole(file=page, width=width, highlight=False, force_terminal=True, color_system="standard"))
    return Text.from_ansi(page.getvalue())


def draw(frame: Frame, console: Console) -> None:
    """Print a frame."""
    alive = [worker for worker in frame.workers if worker.alive(frame.lease)]
    dead = len(frame.workers) - len(alive)
    works = sum(worker.works(frame.lease) for worker in alive)
    told = f"{second(frame.at)} UTC; workers: {works} alive" + (f", {dead} dead" if dead else "")
    console.print(Text(told), soft_wrap=True)
    _sources(frame).print(console)
    _failures(frame).print(console)
    _circuits(frame).print(console)
    if not frame.failures:
        console.print(Text("No events are failing."), soft_wrap=True)


def _sources(frame: Frame) -> Listing:
    counts: dict[str, Counter[str]] = {name: Counter() for name in frame.sources}
    for one in frame.rates:
        counts.setdefault(one.source, Counter())[one.what] += one.n
    waiting: Counter[str] = Counter()
    late: dict[str, float] = {}
    for lag in frame.lag:
        source = base_source(lag.kind.source)
        counts.setdefault(source, Counter())
        waiting[source] += lag.pending + lag.retrying + lag.processing
        late[source] = max(late.get(source, 0.0), lag.overdue or 0.0)
    figures = ("in/s", "dup", "rej", "done/s", "fail", "wait", "late", "ack", "delay")
    listing = Listing("source", *map(number, figures), heads=1)
    for source in sorted(counts):
        found = counts[source]
        listing.add(
            source or STRANGERS,
            _rate(found["delivery.accepted"]),
            _count(found["delivery.duplicate"]),
            _count(found["rejected"]),
            _rate(found["attempt.processed"]),
            _count(found["attempt.failed"] + found["attempt.retrying"] + found["attempt.needs_review"]),
            _count(waiting[source]),
            duration(late[source]) if late.get(source) else "",
            within(found, "ack"),
            within(found, "delay"),
        )
    return listing


def _rate(count: int) -> str:
    return f"{count / WINDOW:,.1f}" if count else ""


def _count(count: int) -> str:
    return f"{count:,}" if count else ""


def within(found: Mapping[str, int], name: str, share: float = 0.95) -> str:
    """Return the bound within which this share of values is, from the counts of their buckets."""
    buckets = {what.removeprefix(f"{name}."): n for what, n in found.items() if what.startswith(f"{name}.")}
    total, seen = sum(buckets.values()), 0
    for bound in sorted(buckets, key=float):
        seen += buckets[bound]
        if total and seen >= share * total:
            return "more" if bound == "inf" else _short(float(bound))
    return ""


def _short(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else duration(seconds).replace(".0 ", " ")


def _failures(frame: Frame) -> Listing:
    listing = Listing(number("events"), "source", "type", prose("cause"), heads=3, title="Failing")
    for group in frame.failures[:CAUSES]:
        listing.add(f"{group.count:,}", group.source, group.type, group.cause)
    return listing


def _circuits(frame: Frame) -> Listing:
    listing = Listing("downstream", "circuit", prose("reason"), heads=2, title="Circuits")
    for circuit in frame.circuits:
        if circuit.state is not CircuitState.CLOSED:
            listing.add(circuit.downstream, circuit.state, circuit.reason or "")
    return listing
