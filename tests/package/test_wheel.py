"""The package as users get it: wheel and sdist are built, and the wheel is used in an environment of its own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.services.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds that the receiver is given to start."""
APP = """
from hookledger import Event, Inbox

inbox = Inbox("sqlite:///inbox.db")
stripe = inbox.source("stripe", provider="stripe", secrets=["env:STRIPE_WEBHOOK_SECRET"])


@stripe.on("invoice.paid")
async def paid(event: Event) -> str:
    await event.tx.execute("INSERT INTO paid VALUES ($1)", event.object_id)
    return f"recorded {event.object_id}"
"""


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Without anything that leads a Python to this repository."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    } | variables


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Its stdout."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# ── what is built ────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [found] = built.glob("*.whl")
    return found


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_wheel_has_all_of_the_package_and_nothing_else(wheel: Path) -> None:
    found = {name for name in contents(wheel) if ".dist-info/" not in name}
    source = ROOT / "src"
    files = [path for path in (source / "hookledger").rglob("*") if path.is_file()]
    assert found == {path.relative_to(source).as_posix() for path in files if "__pycache__" not in path.parts}
    assert "hookledger/py.typed" in found, "type checkers would take every name for Any"
    folders = ("providers/known", "providers/samples/stripe", "store/sql", "store/postgres", "store/sqlite")
    for folder, ending in zip(folders, (".toml", ".json", ".sql", ".sql", ".sql"), strict=True):
        assert [name for name in found if name.startswith(f"hookledger/{folder}/") and name.endswith(ending)]


def test_the_sdist_builds_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    assert not {".venv", ".git", "dist"} & {path.name for path in source.iterdir()}
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    assert contents(tmp_path / wheel.name) == contents(wheel)


# ── what is installed ────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a new environment with `hookledger[all]` from the wheel and its dependencies from the index."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / "bin" / "python",
        "--disable-pip-version-check",
    ]
    run(*pip, "install", "-qq", "--no-compile", f"{wheel}[all]", cwd=folder)
    return folder / "bin"


@contextmanager
def receiving(command: Path, port: int, cwd: Path, variables: dict[str, str]) -> Iterator[str]:
    """`hookledger receive`, ready; yields its URL."""
    url = f"http://127.0.0.1:{port}"
    with (cwd / "receiver.log").open("wb") as log:
        receiver = subprocess.Popen(
            [str(command), "receive", "--port", str(port), "--operator-port", str(free_port())],
            cwd=cwd,
            env=environment(variables),
            stderr=log,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not _ready(f"{url}/readyz"):
            assert receiver.poll() is None and time.monotonic() < deadline, (cwd / "receiver.log").read_text()
            time.sleep(0.05)
        yield url
    finally:
        receiver.terminate()
        receiver.wait(60)
    assert receiver.returncode == 0, (cwd / "receiver.log").read_text()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_the_wheel_migrates_accepts_and_processes_an_event_once(installed: Path, tmp_path: Path) -> None:
    imported = run(installed / "python", "-I", "-c", "import hookledger; print(hookledger.__file__)", cwd=tmp_path)
    assert Path(imported.strip()).is_relative_to(installed.parent), "this repository is tested instead"
    (tmp_path / "app.py").write_text(APP)
    variables = {"HOOKLEDGER_APP": "app:inbox", "STRIPE_WEBHOOK_SECRET": "whsec_made_up_for_the_test"}
    hookledger = installed / "hookledger"
    run(hookledger, "migrate", cwd=tmp_path, **variables)
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as database:
        database.execute("CREATE TABLE paid (invoice TEXT)")
        database.commit()

    with receiving(hookledger, free_port(), tmp_path, variables) as url:
        send = ("send", "stripe", "--type", "invoice.paid", "--id", "evt_1", "--twice", "--url", f"{url}/stripe")
        answers = run(hookledger, *send, cwd=tmp_path, **variables).splitlines()
    assert [answer.split()[0] for answer in answers] == ["202", "200"]
    run(hookledger, "work", "--drain", cwd=tmp_path, **variables)

    shown = json.loads(run(hookledger, "show", "evt_1", "--json", cwd=tmp_path, **variables))
    assert shown["event"]["state"] == "processed"
    assert [delivery["outcome"] for delivery in shown["deliveries"]] == ["accepted", "duplicate"]
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["processed"]
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as database:
        assert database.execute("SELECT invoice FROM paid").fetchall() == [(shown["event"]["object_id"],)]
