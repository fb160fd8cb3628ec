"""docs/how-to/api.md, executed: its settings, a real receiver, its commands with curl."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hookledger import Inbox
from hookledger.cli import exits
from hookledger.states import State
from tests.builders import KIND, claim, recorded, settle
from tests.docs.test_readme import wait_until_ready
from tests.services.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "api.md").read_text()
TOKENS = {"HOOKLEDGER_TOKEN_ADA": "a-made-up-token-of-ada", "HOOKLEDGER_TOKEN_REPORTS": "a-made-up-token-of-reports"}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    [settings] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "hookledger.toml").write_text(settings)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
    return {
        **mine,
        **TOKENS,
        "PYTHONPATH": f"{ROOT / 'src'}",
        "STRIPE_WEBHOOK_SECRET": "whsec_made_up_for_the_docs",
        "HOOKLEDGER_DATABASE": f"sqlite:///{tmp_path}/inbox.db",
        "HOOKLEDGER_PORT": str(free_port()),
        "HOOKLEDGER_OPERATOR_PORT": str(free_port()),
        "NO_COLOR": "1",
        "no_proxy": "127.0.0.1",
    }


async def fail_one(database: str) -> None:
    inbox = Inbox(database)
    await inbox.migrate()
    async with inbox.opened() as store:
        await store.know_sources(["stripe"])
        await recorded(store, "evt_1")
        assert await settle(store, await claim(store, KIND), "fail")


def receive(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hookledger", "receive"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def stopped(server: subprocess.Popen[str]) -> str:
    """What it said."""
    server.terminate()
    _, said = server.communicate(timeout=60)
    assert server.returncode == exits.OK, said
    return said


def test_its_commands_run(tmp_path: Path, environment: dict[str, str]) -> None:
    asyncio.run(fail_one(environment["HOOKLEDGER_DATABASE"]))
    here = f"127.0.0.1:{environment['HOOKLEDGER_OPERATOR_PORT']}"
    server = receive(tmp_path, environment)
    try:
        wait_until_ready(f"http://{here}/readyz")
        blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
        commands = "".join(blocks).replace("\\\n", " ").strip().splitlines()
        answers = [_run(command.replace("127.0.0.1:8701", here), tmp_path, environment) for command in commands]
        summary, page, event, retried = answers
        assert summary["events"]["failed"] == 1
        assert ([row["key"] for row in page["events"]], page["next"]) == (["evt_1"], None)
        assert (event["event"]["state"], event["complete"]) == ("failed", True)
        assert retried["state"] == State.PENDING
        again = _run(commands[-1].replace("127.0.0.1:8701", here), tmp_path, environment)
        assert (again["error"], "retry by ada" in again["message"]) == ("conflict", True)
        intake = f"http://127.0.0.1:{environment['HOOKLEDGER_PORT']}"
        assert httpx2.get(f"{intake}/api/v1/events").status_code == 404, "providers never reach it"
    finally:
        said = stopped(server)
    assert f"API at http://{here}/api/v1, tokens: ada (operator), reports (viewer)" in said
    for token in TOKENS.values():
        assert token not in said


def _run(command: str, folder: Path, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_without_tokens_it_says_how_to_turn_it_on(tmp_path: Path, environment: dict[str, str]) -> None:
    settings = (tmp_path / "hookledger.toml").read_text().partition("[operator]")[0]
    (tmp_path / "hookledger.toml").write_text(settings)
    asyncio.run(fail_one(environment["HOOKLEDGER_DATABASE"]))
    here = f"http://127.0.0.1:{environment['HOOKLEDGER_OPERATOR_PORT']}"
    server = receive(tmp_path, environment)
    try:
        wait_until_ready(f"{here}/readyz")
        answer = httpx2.get(f"{here}/api/v1/events", headers={"authorization": "Bearer x"})
        assert (answer.status_code, answer.json()["error"]) == (404, "api_off")
    finally:
        said = stopped(server)
    assert "API off: no token is configured" in said


@pytest.mark.parametrize("command", ["receive", "serve"])
def test_a_token_that_is_none_is_refused_at_the_start(
    tmp_path: Path, environment: dict[str, str], command: str
) -> None:
    environment["HOOKLEDGER_TOKEN_ADA"] = "brief-one"
    asyncio.run(fail_one(environment["HOOKLEDGER_DATABASE"]))
    done = subprocess.run(
        [sys.executable, "-m", "hookledger", command],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == exits.CONFIG
    assert "'ada' is too short: use at least 20 characters" in done.stderr
    assert "brief-one" not in done.stderr
    looks = [sys.executable, "-m", "hookledger", "events", "--json"]
    looked = subprocess.run(looks, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False)
    assert looked.returncode == exits.OK, "who only looks needs no token"
