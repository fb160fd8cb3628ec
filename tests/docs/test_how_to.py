"""The code in docs/how-to runs, and what it shows of a terminal is what is printed."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hookledger import Inbox
from hookledger.clock import Clock
from hookledger.states import Repeat
from hookledger.store.connect import connect
from tests.builders import claimed, settle
from tests.ledger import finish, plan, take
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.services import terminal

ALL = sorted((Path(__file__).resolve().parents[2] / "docs" / "how-to").glob("*.md"))
OWN_PROCESS = {"logs-and-traces"}
"""Its code sets up logging and tracing of the whole process: test_logs_how_to.py."""
OTHERS = {"redis"}
"""Needs no inbox: test_redis_how_to.py."""
PAGES = [page for page in ALL if "```python" in page.read_text() and page.stem not in OWN_PROCESS | OTHERS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_code_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRIPE_WEBHOOK_SECRET", "GITHUB_WEBHOOK_SECRET", "SQUARE"):
        monkeypatch.setenv(name, "whsec_made_up_for_the_docs")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    inbox: Inbox = names["inbox"]
    inbox.effects.verify()
    assert inbox.routes.handles(), "each page ends with a handler"


def same_everywhere(line: str) -> str:
    """Without ids, moments and how long ago they were."""
    line = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", line)
    return re.sub(r"\d\d-\d\d \d\d:\d\d:\d\d \([\d.]+ \w+\)", "SINCE", line.rstrip())


def test_effects_are_printed_as_the_page_shows(
    shop: Run,  # noqa: F811
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    async def fail() -> None:
        store = connect(f"sqlite:///{tmp_path}/shop.db", clock=Clock())
        await store.open()
        owner = await claimed(store, "evt_1", source="shop")
        [identity] = await plan(store, owner, "order-17", name="post", repeat=Repeat.SAFE)
        await take(store, "post")
        await finish(store, identity, 1, "refused", error="ConnectionRefusedError: mail.example.test:443")
        await settle(store, owner, "complete")
        await store.close()

    asyncio.run(fail())
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE effects SET number = 20, tries = 20")
    environment.pop("COLUMNS", None)
    arguments, env = ("effects", "--state", "failed"), {**environment, "TERM": "xterm"}
    _, printed = terminal.show("hookledger", arguments, columns=100, cwd=tmp_path, env=env)
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "trouble.md"
    [shown] = re.findall(r"```console\n\$ hookledger effects --state failed\n(.*?)```", page.read_text(), re.DOTALL)
    expected = [same_everywhere(line) for line in shown.splitlines()]
    assert [same_everywhere(line) for line in terminal.plain(printed)] == expected, "\n".join(terminal.plain(printed))
