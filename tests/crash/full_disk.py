"""Run by test_disk_full.py where it may mount a tmpfs; pytest does not collect it by itself."""

import subprocess
import time
from pathlib import Path

from tests.crash.conftest import Install
from tests.crash.processes import event, events, eventually


def test_no_ack_while_the_disk_is_full(install: Install, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(disk)], check=True)
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


def fill(ballast: Path) -> None:
    """Until not one byte fits."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
