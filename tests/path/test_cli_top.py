"""`hookledger top` on a terminal and in a pipe."""

import asyncio
import io
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from rich.cells import cell_len

from hookledger.cli import exits
from hookledger.cli.common import SafeConsole
from hookledger.cli.top import Frame, draw, within
from hookledger.clock import Clock
from hookledger.model import Kind
from hookledger.states import CircuitState
from hookledger.store.connect import connect
from hookledger.store.ops.circuits import Circuit
from hookledger.store.ops.rates import Rate
from hookledger.store.ops.search import FailureGroup, Lag
from hookledger.store.ops.workers import WorkerInfo
from tests.builders import delivered, record
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.services import terminal


async def fill(url: str) -> None:
    clock = Clock(-15.0)
    store = connect(url, clock=clock)
    await store.open()
    counts = {
        ("stripe", "delivery.accepted"): 120,
        ("stripe", "delivery.duplicate"): 7,
        ("stripe", "attempt.processed"): 60,
        ("stripe", "attempt.failed"): 3,
        ("stripe", "ack.0.01"): 119,
        ("stripe", "ack.0.05"): 8,
        ("", "rejected"): 31,
    }
    await store.rates.add("a", 1, counts)
    clock.offset = 0.0
    await record(store, delivered("evt_1", b"{}", type="invoice.bad"))
    await store.close()


def test_with_nothing_in_the_database(shop: Run) -> None:  # noqa: F811
    shown = shop("top", "--once")
    assert shown.returncode == exits.OK, shown.stderr
    assert "workers: 0 alive" in shown.stdout
    assert "stripe" in shown.stdout
    assert "No events are failing." in shown.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_rates_and_failures(
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
    shop: Run,  # noqa: F811
    columns: int,
) -> None:
    asyncio.run(fill(f"sqlite:///{tmp_path}/shop.db"))
    assert shop("work", "--drain").returncode == exits.OK
    environment.pop("COLUMNS", None)
    variables = {**environment, "TERM": "xterm"}
    code, screen = terminal.show("hookledger", ["top", "--once"], columns=columns, cwd=tmp_path, env=variables)
    assert code == exits.OK, screen
    lines = terminal.plain(screen)
    assert all(cell_len(line) <= columns for line in lines), screen
    whole = "\n".join(lines)
    for word in ("stripe", "2.0", "7", "(no source)", "31", "50 ms", "unknown plan", "invoice.bad"):
        assert word in whole, screen


def test_words_that_strangers_chose_do_not_control_the_terminal() -> None:
    hostile = "paid\x1b[2J\u202egone [bold]\n"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    group = FailureGroup(hostile, hostile, hostile, 1, now, now, UUID(int=1), 1, 0, 0, 0)
    circuit = Circuit(hostile, CircuitState.OPEN, 5, None, hostile, now)
    worker = WorkerInfo(hostile, (), 1.0)
    rate = Rate(now, hostile, "delivery.accepted", 1)
    lag = Lag(Kind(hostile, hostile), 1, 1, 1, 5.0, 9.0)
    page = io.StringIO()
    frame = Frame(now, [hostile], [rate], [lag], [group], [circuit], [worker], 60.0)
    draw(frame, SafeConsole(file=page, color_system=None, highlight=False, width=200))
    assert "\x1b" not in page.getvalue()
    assert "\u202e" not in page.getvalue()
    assert "paid\\u001b[2J\\u202egone [bold]" in page.getvalue()


def test_the_bound_within_which_most_values_are() -> None:
    found = {"ack.0.01": 94, "ack.0.05": 4, "ack.inf": 2, "delay.1": 1}
    assert within(found, "ack") == "50 ms"
    assert within({"ack.inf": 1}, "ack") == "more"
    assert within(found, "delay") == "1 s"
    assert within({}, "ack") == ""
