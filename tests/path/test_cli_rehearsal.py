"""`replay --rehearse`: real processes, one of them killed while it rehearses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hookledger.cli import exits
from tests.path.test_cli import Run, environment, run  # noqa: F401 - fixtures
from tests.path.test_cli_effects import BOOK, arrive
from tests.services.forked import Forked
from tests.services.postgres import Databases

APP = """
import time
from pathlib import Path
from hookledger import Event, Inbox, Op, SyncEvent

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])

@inbox.effect(repeat="never")
async def charge(op: Op, cents: int) -> str:
    Path("charged").touch()
    return "ch_1"

@stripe.on("invoice.paid", rehearsable=True)
async def paid(event: Event) -> str:
    await event.tx.execute("UPDATE accounts SET credit = credit + 1")
    if event.run == 1:
        return "paid"
    return await event.call(charge, event.key, cents=5)

@stripe.on("invoice.sent", rehearsable=True, timeout=2)
def sent(event: SyncEvent) -> None:
    event.tx.execute("UPDATE accounts SET credit = credit + 1")
    if event.rehearsal:
        Path("there").touch()
        time.sleep(60)

@stripe.on("invoice.void")
async def void(event: Event) -> None: ...
"""


@pytest.fixture
def url(postgres: Databases) -> Iterator[str]:
    name = f"hookledger_rehearsal_{os.getpid()}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def shop(tmp_path: Path, url: str, environment: dict[str, str], run: Run) -> Run:  # noqa: F811
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "book.py").write_text(BOOK.replace("sqlite:///shop.db", url))
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    environment |= {"HOOKLEDGER_APP": "shop:inbox", "HOOKLEDGER_DATABASE": url}
    assert run("migrate").returncode == exits.OK
    Databases(url).execute("CREATE TABLE public.accounts AS SELECT 0 AS credit")
    for kind in ("paid", "sent", "void"):
        arrive(tmp_path, environment, f"{kind}=invoice.{kind}")
    assert run("work", "--drain").returncode == exits.OK
    return run


@pytest.fixture
def worker(tmp_path: Path, environment: dict[str, str], shop: Run) -> Iterator[Forked]:  # noqa: F811
    process = Forked("hookledger", ["work"], cwd=tmp_path, env=environment)
    yield process
    process.kill()
    process.wait(60)


def eventually(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def credit(url: str) -> int:
    found: int = Databases(url).fetchval("SELECT credit FROM public.accounts")
    return found


REASON = ("--reason", "finance asked", "--actor", "ada")


# proves R45, R51
def test_a_rehearsal(shop: Run, worker: Forked, url: str, tmp_path: Path) -> None:
    assert credit(url) == 2
    told = shop("replay", "paid", "--rehearse", *REASON)
    assert told.returncode == exits.REHEARSAL, told.stderr
    words = " ".join(told.stdout.split())
    assert "Rehearsed: stopped: charge:paid would be called now, for the first time" in words
    assert "It wrote accounts: 1 updated." in words
    assert "Everything was rolled back, by" in words
    assert "is declared rehearsable" in words

    as_json = shop("replay", "paid", "--rehearse", "--json", *REASON)
    value = json.loads(as_json.stdout)
    assert value["preview"]["verdict"] == "will do"
    assert value["rehearsal"]["result"]["ended"] == "stopped"
    assert value["rehearsal"]["result"]["writes"] == [
        {"table": "accounts", "inserted": 0, "updated": 1, "deleted": 0}
    ]
    assert (credit(url), (tmp_path / "charged").exists()) == (2, False)

    shown = json.loads(shop("show", "paid", "--json").stdout)
    assert [action["name"] for action in shown["actions"]] == ["rehearse", "rehearse"]
    assert (shown["event"]["state"], shown["event"]["run"]) == ("processed", 1)
    assert worker.poll() is None


def test_what_is_refused(shop: Run) -> None:  # proves R45, R51
    assert shop("replay", "paid", "--rehearse").returncode == exits.USAGE
    assert shop("replay", "paid", "--rehearse", "--preview", *REASON).returncode == exits.USAGE
    undeclared = shop("replay", "void", "--rehearse", *REASON)
    assert undeclared.returncode == exits.CONFIG
    assert "is not declared with rehearsable=True" in " ".join(undeclared.stderr.split())
    nobody = shop("replay", "paid", "--rehearse", "--json", *REASON)
    assert nobody.returncode == exits.REFUSED
    assert json.loads(nobody.stdout)["rehearsal"]["result"]["words"] == "no worker that can rehearse it is alive"


def test_a_worker_killed_at_it(  # proves R45
    shop: Run,
    worker: Forked,
    url: str,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    before = credit(url)
    command = [sys.executable, "-m", "hookledger", "replay", "sent", "--rehearse", "--json", *REASON]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as asking:
        eventually((tmp_path / "there").exists, "the rehearsal")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        out, _ = asking.communicate(timeout=60)
    told = json.loads(out)["rehearsal"]
    assert (asking.returncode, told["state"]) == (exits.REFUSED, "failed")
    assert "the worker died" in told["result"]["words"]
    idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
    eventually(lambda: Databases(url).fetchval(idle) == 0, "a transaction is left")
    assert credit(url) == before
    assert Databases(url).fetchval("SELECT count(*) FROM hookledger.rehearsal_guard") == 0
    # And it stands in nobody's way.
    replayed = shop("replay", "sent", "--yes", *REASON)
    assert replayed.returncode == exits.OK, replayed.stderr
    assert shop("work", "--drain").returncode == exits.OK
    assert credit(url) == before + 1
