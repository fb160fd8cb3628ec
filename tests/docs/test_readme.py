"""The README's examples run and print what it shows."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from hookledger import Inbox
from tests.builders import history, recorded
from tests.services.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BIN = str(Path(sys.executable).parent)


def block(language: str, containing: str = "") -> str:
    found = [text for kind, text in re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL) if kind == language]
    return str(next(text for text in found if containing in text))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    exports = dict(re.findall(r"(\w+)=(\S+)", block("bash", "STRIPE_WEBHOOK_SECRET")))
    source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    # Free ports, so that the test can run beside anything; the words of the README stay as they are.
    ports = {"HOOKLEDGER_PORT": str(free_port()), "HOOKLEDGER_OPERATOR_PORT": str(free_port())}
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **exports, **ports, "PATH": path, "PYTHONPATH": source, "COLUMNS": "200"}


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    command = command.replace("hookledger ", f"{sys.executable} -m hookledger ", 1)
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# proves R57
def test_the_first_screen(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "app.py").write_text(block("python"))
    *_, create, serve = block("bash", "serve --dev").strip().splitlines()
    subprocess.run(create, shell=True, cwd=tmp_path, env=environment, check=True, timeout=60)
    serve = serve.replace("hookledger", "-m hookledger", 1)
    server = subprocess.Popen([sys.executable, *serve.split()], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        url = f"http://127.0.0.1:{environment['HOOKLEDGER_PORT']}"
        wait_until_ready(f"{url}/readyz")
        consoles = [block("console", "send stripe"), block("console", "show evt_1")]
        send = re.findall(r"^\$ (.*)$", consoles[0], re.MULTILINE)[0]
        answers = run(f"{send} --url {url}/stripe", tmp_path, environment)
        assert places(consoles[0].split("\n", 1)[1], answers) == [0, 1]

        export, show = re.findall(r"^\$ (.*)$", consoles[1], re.MULTILINE)
        environment |= dict(re.findall(r"(\w+)=(\S+)", export))
        deadline = time.monotonic() + 90
        while "processed" not in (shown := run(show, tmp_path, environment)):
            assert time.monotonic() < deadline, shown
        # In any order: the worker may be faster than the second delivery.
        assert places(consoles[1].split("\n", 2)[2], shown)
    finally:
        server.terminate()
        server.wait(60)


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def places(promised: str, printed: str) -> list[int]:
    """Where each line that the README shows is in the output; … matches anything, a space any number of them."""
    found = []
    lines = printed.splitlines()
    for line in filter(lambda line: line.strip() != "…", promised.splitlines()):
        pattern = ".*".join(re.escape(part).replace(r"\ ", r"\s+") for part in " ".join(line.split()).split("…"))
        matching = [place for place, given in enumerate(lines) if re.search(pattern, f" {given} ")]
        assert matching, f"promised:\n{promised}\nprinted:\n{printed}"
        found.append(matching[0])
    return found


PRELUDE = """
import os, pathlib
from hookledger import Event, Inbox, Op

CALLS = pathlib.Path("calls.txt")

def note(*words: str) -> None:
    with CALLS.open("a") as file:
        print(*words, file=file)

class mail:
    async def send(to: str, what: str, invoice: str, *, idempotency_key: str) -> None:
        note("mail", to, what, invoice, idempotency_key)

class payments:
    async def charge(customer: str, cents: int) -> str:
        note("charge", customer, str(cents))
        raise TimeoutError("no answer")

inbox = Inbox("sqlite:///inbox.db")
stripe = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up_for_the_readme"])
"""


async def test_the_effects(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    code = PRELUDE + block("python", "@inbox.effect")
    (tmp_path / "app.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    inbox: Inbox = names["inbox"]
    await inbox.migrate()
    invoice = {"id": "in_1", "customer": "cus_1", "email": "a@example.test"}
    body = msgspec.json.encode({"id": "evt_1", "type": "invoice.paid", "data": {"object": invoice}})
    async with inbox.opened(handlers=1) as store:
        event_id = await recorded(store, "evt_1", body)
        await store.know_sources(["stripe"])
        tx = store.transaction()
        await tx.tx.execute("CREATE TABLE accounts (id TEXT, credit INTEGER)")
        await tx.tx.execute("INSERT INTO accounts VALUES ('cus_1', 0)")
        await tx.commit([])
    await inbox.work(drain=True)
    assert (tmp_path / "calls.txt").read_text() == "charge cus_1 500\n"

    environment |= {"HOOKLEDGER_APP": "app:inbox"}
    [resolve] = re.findall(r"^\$ (.*)$", block("console", "hookledger resolve"), re.MULTILINE)
    run(resolve, tmp_path, environment)
    await inbox.work(drain=True)
    async with inbox.opened(handlers=1) as store:
        done = await history(store, event_id)
        assert done.event.state == "processed", done.event.reason
        assert [(known.effect.name, known.effect.state) for known in done.effects] == [
            ("charge", "done"),
            ("credit", "done"),
            ("send_receipt", "done"),
        ]
        tx = store.transaction()
        assert await tx.tx.fetchval("SELECT credit FROM accounts") == 500
        await tx.rollback()
    lines = (tmp_path / "calls.txt").read_text().splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"mail a@example.test receipt ch_1 hl_[0-9a-f]{40}", lines[1])
