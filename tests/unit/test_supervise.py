"""What the supervisor does about a child without starting one."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import hookledger
from hookledger import Inbox
from hookledger.cli import cli, exits, processes
from hookledger.cli.monitor import Monitor
from hookledger.cli.supervise import FATAL, MONITOR, WORKING, Supervisor, report_started
from hookledger.clock import Seconds
from hookledger.config import decode
from hookledger.store.sqlite import watch
from hookledger.store.sqlite.watch import LockWatch
from hookledger.work.settings import WorkSettings
from tests.services.ports import free_port


@pytest.mark.parametrize("name", ["work", "api"])
def test_who_holds_the_write_lock_for_too_long_is_killed(name: str, tmp_path: Path) -> None:
    supervisor = Supervisor({}, environment={}, lock_limit=1.0, shutdown_timeout=0.0)
    file = supervisor._watched(name, tmp_path)[watch.VARIABLE]
    with subprocess.Popen(["sleep", "60"]) as child:
        supervisor._children[name] = child
        held = LockWatch(Path(file))
        held.locked()
        supervisor._end_if_frozen(name)
        assert child.poll() is None, "it was taken a moment ago"
        held._put(watch.WRITER, 1.0)
        supervisor._end_if_frozen(name)
        assert child.wait(30) == -9
    again = supervisor._watched(name, tmp_path)[watch.VARIABLE]
    assert LockWatch(Path(again)).held_for() == 0.0, "its successor does not hold it"


def test_only_a_worker_that_never_got_to_work_is_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    supervisor = Supervisor({}, environment={}, lock_limit=1.0, shutdown_timeout=0.0)

    def die(*, working: bool) -> float:
        """How long its successor has to wait."""
        told = supervisor._watched("work", tmp_path)
        supervisor._born["work"] = 100.0
        if working:
            Path(told[WORKING]).touch()
        supervisor._start_later("work", "ended with -9")
        return round(supervisor._due["work"] - 100.0, 1)

    assert [die(working=True) for _ in range(5)] == [0.1] * 5
    assert [die(working=False) for _ in range(4)] == [0.2, 0.4, 0.8, 1.6]
    assert die(working=True) == 0.1
    assert max(die(working=False) for _ in range(1100)) == 30.0, "however often that happens"


def test_a_start_that_cannot_succeed_ends_all_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor({}, environment={}, lock_limit=1.0, shutdown_timeout=0.0)
    for name in ("receive", "work", "api"):
        told = supervisor._watched(name, tmp_path)
        supervisor._born[name] = time.monotonic() - 3600
        supervisor._lives[name] = 1
        assert [code for code in range(20) if supervisor._is_fatal(name, code)] == sorted(FATAL), name
        monkeypatch.setenv(WORKING, told[WORKING])
        report_started()
        assert not any(supervisor._is_fatal(name, code) for code in range(20)), f"{name} had started"
        supervisor._watched(name, tmp_path)
        supervisor._lives[name] = 2
        assert supervisor._is_fatal(name, exits.CONFIG) is (name != "api"), "deliveries do not wait for the API"


def test_what_lies_in_the_folder_is_not_a_childs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("signal", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/hookledger", "serve"])
    read, write = os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(Path(hookledger.__file__).parents[1])}
    supervisor = Supervisor({"receive": ["--help"]}, environment={}, lock_limit=1.0, shutdown_timeout=0.0)
    supervisor._start("receive", environment, read)
    assert supervisor._children["receive"].wait(60) == 0
    os.close(read)
    os.close(write)


def test_a_worker_is_not_killed_before_its_own_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, float] = {}

    class Told:
        def __init__(self, commands: object, *, shutdown_timeout: float, **_: object) -> None:
            given["seconds"] = shutdown_timeout

        def run(self) -> int:
            return 0

    monkeypatch.setattr(processes, "Supervisor", Told)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "set_up_logging", lambda *_, **__: None)
    Path("hookledger.toml").write_text(
        'database = "sqlite:///inbox.db"\n[work]\nshutdown_timeout = "7s"\nlease = "30s"\n'
        '[sources.stripe]\nprovider = "stripe"\nsecrets = ["whsec_made_up_for_the_tests"]\n'
    )
    done = CliRunner().invoke(cli, ["serve"])
    assert done.exit_code == 0, done.output
    assert given["seconds"] == WorkSettings(shutdown_timeout=Seconds("7s"), lease=Seconds("30s")).longest_stop


def test_without_sockets_the_children_do_not_all_listen_at_one_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where the path of the temporary folder is too long: the second child would end all of them."""
    address = f"127.0.0.1:{free_port()}"
    supervisor = Supervisor({"receive": [], "work": []}, environment={}, lock_limit=1.0, shutdown_timeout=0.0)
    environment = {MONITOR: address, **supervisor._monitors(tmp_path / ("long" * 30))}
    inbox = Inbox("sqlite:///unused.db", settings=decode({"monitor": {"address": address}}))
    with contextlib.ExitStack() as stack:
        for name in ("receive", "work"):
            for variable, value in {**environment, **supervisor._watched(name, tmp_path)}.items():
                monkeypatch.setenv(variable, value)
            stack.enter_context(Monitor(name, inbox, os.environ[MONITOR] or None))
