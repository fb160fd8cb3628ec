"""Run by test_disk_full.py where it may mount a tmpfs; pytest does not collect it by itself."""

import os
import subprocess
import sys
import time
from pathlib import Path

from hookledger.cli import exits
from tests.crash.conftest import Install
from tests.crash.processes import PATIENCE, children_of, event, events, eventually
from tests.crash.test_output import command_of, serving


def test_no_ack_while_the_disk_is_full(install: Install, tmp_path: Path) -> None:
    disk = small_disk(tmp_path)
    installation = install(f"sqlite:///{disk}/inbox.db")
    database = installation.database
    announced, go = tmp_path / "announced", tmp_path / "go"
    receiver, worker = installation.receive(), installation.work()
    installation.send(*events(50), event("evt_long", "freeze", announce=str(announced), go=str(go)))
    eventually(announced.exists, "a handler is running")

    ballast = disk / "ballast"
    fill(ballast)
    sender, log = installation.start_sending(events(500, "order", "slow", prefix="late"), connections=8, pause=0.01)
    eventually(lambda: log.statuses()[503] > 50, "answers while the disk is full")
    full_from = len(log.answers())
    fill(ballast)  # whatever was freed meanwhile
    time.sleep(2.5)  # longer than the lease
    assert sender.running
    assert {a["status"] for a in log.answers()[full_from + 16 :]} == {503}, "an ack on a full disk"
    assert not installation.ready()

    ballast.unlink()
    go.touch()
    assert sender.exit_code() == 0, log.statuses()
    assert {(a["status"], a["retry_after"]) for a in log.answers() if a["status"] != 202} == {(503, "5")}
    assert eventually(installation.ready, "ready again")
    installation.drain()
    installation.check()
    assert database.states() == {"processed": 551}
    assert database.outcomes()["crashed"] == 0, "a live worker was declared dead"
    assert receiver.running
    assert worker.running


def test_serve_recovers_when_there_is_room(install: Install, tmp_path: Path) -> None:
    """Database and log share the disk: neither ends a process, and nobody has to start anything again."""
    disk = small_disk(tmp_path)
    installation = install(f"sqlite:///{disk}/inbox.db")
    output = os.open(disk / "serve.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with serving(installation, output) as supervisor:
        eventually(installation.ready, "ready")
        installation.send(*events(50))
        processes = {command_of(pid): pid for pid in children_of(supervisor.pid)}

        ballast = disk / "ballast"
        fill(ballast)
        sender, log = installation.start_sending(events(300, prefix="late"), pause=0.01)
        eventually(lambda: log.statuses()[503] > 50, "answers while the disk is full")
        fill(ballast)
        full_from = len(log.answers())
        eventually(lambda: len(log.answers()) > full_from + 50, "more of them")
        assert {a["status"] for a in log.answers()[full_from + 16 :]} == {503}, "an ack on a full disk"
        eventually(lambda: not installation.ready(), "not ready")

        ballast.unlink()
        assert sender.exit_code() == 0, log.statuses()
        assert eventually(installation.ready, "ready again")
        installation.drain()
        installation.check()
        assert installation.database.states() == {"processed": 350}
        assert {command_of(pid): pid for pid in children_of(supervisor.pid)} == processes, "one was started again"
        supervisor.terminate()
        assert supervisor.wait(PATIENCE) == 0


def test_a_read_only_disk_is_called_so(install: Install, tmp_path: Path) -> None:
    disk = small_disk(tmp_path)
    installation = install(f"sqlite:///{disk}/inbox.db")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for command, database in (("events", "inbox.db"), ("doctor", "inbox.db"), ("migrate", "new.db")):
        ended = subprocess.run(
            [sys.executable, "-m", "hookledger", command, "--database", f"sqlite:///{disk}/{database}"],
            capture_output=True,
            text=True,
            check=False,
        )
        said = " ".join((ended.stdout + ended.stderr).split())
        assert f"{disk}/{database} cannot be written: its disk is mounted read-only" in said, said
        assert "hookledger migrate" not in said
        assert ended.returncode == (exits.PROBLEM if command == "doctor" else exits.UNAVAILABLE)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    installation.receive()
    installation.send(*events(1))
    assert installation.database.states() == {"pending": 1}


def small_disk(folder: Path) -> Path:
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(disk)], check=True)
    return disk


def fill(ballast: Path) -> None:
    """Until not one byte fits."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
