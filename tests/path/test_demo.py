"""`hookledger demo`: the newcomer's first proof, so it is one of ours."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookledger.cli import exits
from hookledger.cli.demo import print_report
from hookledger.cli.demo_scenario import Effect, Report, Sent

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Temporary folders of the demo appear in tmp_path; what is left running can be told by it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.setenv("HOOKLEDGER_DATABASE", "sqlite:////the/person's/own.db")  # must not be touched
    return [sys.executable, "-m", "hookledger", "demo"]


def left_running(folder: Path) -> list[str]:
    """Processes that work in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(process.joinpath("cwd").readlink()).startswith(str(folder)):
                found.append(process.joinpath("cmdline").read_text())
        except OSError:
            continue
    return found


def test_everything_happens_exactly_once(command: list[str], tmp_path: Path) -> None:
    ended = subprocess.run([*command, "--exit", "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == exits.OK, ended.stderr
    report = json.loads(ended.stdout)
    assert report["exactly_once"]
    assert all(effect["right"] for effect in report["effects"])
    found = {effect["name"]: effect["found"] for effect in report["effects"]}
    assert found["attempts killed, then reclaimed"] >= 1
    assert {"kind": "forged", "answers": {"401": 1}, "expected": {"401": 1}} in report["deliveries"]
    assert list(tmp_path.iterdir()) == []
    assert left_running(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_ends_with_everything_it_started(command: list[str], tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "Sending 12 new events" in line:
            break
    assert len(left_running(tmp_path)) >= 2
    process.send_signal(number)
    process.communicate(timeout=60)
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 90
    while left_running(tmp_path):
        assert time.monotonic() < deadline, left_running(tmp_path)
        time.sleep(0.05)


def test_folder_that_is_not_empty(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    ended = subprocess.run(
        [*command, "--exit", "--keep-database", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == exits.CONFIG
    assert os.listdir(tmp_path) == ["precious"]


def test_wrong_count_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(Report([Sent("new", {202: 1, 500: 1}, {202: 2})], [Effect("mails", 1, 2, False)], False))
    shown = capsys.readouterr().out
    assert shown.count("✘") == 3
    assert "Not every effect happened exactly once" in shown
