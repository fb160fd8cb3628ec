"""SQLite on a disk without space: no ack, and everything goes on when there is space again.

The disk is a small tmpfs in a mount namespace of its own, where this file runs a second time. An ordinary user
gets one too (`unshare -Urm`), unless the system forbids user namespaces.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.conftest import Install
from tests.crash.processes import ROOT, event, events, eventually

INSIDE = "HOOKLEDGER_TEST_IN_NAMESPACE"


def namespace() -> list[str]:
    """The command that runs another where tmpfs can be mounted."""
    problems = []
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        probe = [*command, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
        try:
            done = subprocess.run(probe, capture_output=True, text=True, check=False)
        except FileNotFoundError as missing:
            problems.append(str(missing))
            continue
        if done.returncode == 0:
            return command
        problems.append(f"{' '.join(command)}: {done.stderr.strip()}")
    reason = f"no small disk to fill, tmpfs cannot be mounted here: {'; '.join(problems)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.skipif(INSIDE in os.environ, reason="this is the run inside the namespace")
def test_a_full_disk() -> None:
    # proves R6, R8
    command = [*namespace(), sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(Path(__file__))]
    done = subprocess.run(
        [*command, "-k", "inside"], cwd=ROOT, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.skipif(INSIDE not in os.environ, reason="test_a_full_disk runs it, in a namespace")
def test_inside(install: Install, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)], check=True)
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
