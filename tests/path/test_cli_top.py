"""`hookledger top` on a terminal and in a pipe."""

import asyncio
from pathlib import Path

import pytest
from rich.cells import cell_len

from hookledger.cli import exits
from hookledger.cli.top import within
from hookledger.clock import Clock
from hookledger.store.connect import connect
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
    await record(store, delivered("evt_2", b"{}", type="invoice.\x1b[2Jgone"))
    await store.close()


def test_with_nothing_in_the_database(shop: Run) -> None:  # noqa: F811
    shown = shop("top", "--once")
    assert shown.returncode == exits.OK, shown.stderr
    assert "workers: 0 alive" in shown.stdout
    assert "stripe" in shown.stdout
    assert "No events are failing." in shown.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_rates_failures_and_strangers_words(
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
    for word in ("stripe", "2.0", "7", "(no source)", "31", "10 ms", "unknown plan", "invoice.bad"):
        assert word in whole, screen
    assert "\x1b[2J" not in screen, "a stranger's words do not clear the screen"


def test_the_bound_within_which_most_values_are() -> None:
    found = {"ack.0.01": 94, "ack.0.05": 4, "ack.inf": 2, "delay.1": 1}
    assert within(found, "ack") == "50 ms"
    assert within({"ack.inf": 1}, "ack") == "more"
    assert within(found, "delay") == "1 s"
    assert within({}, "ack") == ""
