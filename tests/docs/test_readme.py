"""The README's first screen, executed word for word."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

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
    ports = {"HOOKLEDGER_SERVE_PORT": str(free_port()), "HOOKLEDGER_SERVE_OPERATOR_PORT": str(free_port())}
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
    serve = block("bash", "serve --dev").strip().splitlines()[-1].replace("hookledger", "-m hookledger", 1)
    server = subprocess.Popen([sys.executable, *serve.split()], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        url = f"http://127.0.0.1:{environment['HOOKLEDGER_SERVE_PORT']}"
        wait_until_ready(f"{url}/readyz")
        consoles = [block("console", "send stripe"), block("console", "show evt_1")]
        send = re.findall(r"^\$ (.*)$", consoles[0], re.MULTILINE)[0]
        answers = run(f"{send} --url {url}/stripe", tmp_path, environment)
        assert fits(consoles[0].split("\n", 1)[1], answers)

        export, show = re.findall(r"^\$ (.*)$", consoles[1], re.MULTILINE)
        environment |= dict(re.findall(r"(\w+)=(\S+)", export))
        deadline = time.monotonic() + 30
        while "processed" not in (shown := run(show, tmp_path, environment)):
            assert time.monotonic() < deadline, shown
        assert fits(consoles[1].split("\n", 2)[2], shown)
    finally:
        server.terminate()
        server.wait(60)


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def fits(promised: str, printed: str) -> bool:
    """Whether the output is what the README shows; … stands for anything, spaces for any number of them."""
    text = " ".join(promised.split())
    pattern = ".*".join(re.escape(part).replace(r"\ ", r"\s+") for part in text.split("…"))
    assert re.search(pattern, printed, re.DOTALL), f"promised:\n{promised}\nprinted:\n{printed}"
    return True
