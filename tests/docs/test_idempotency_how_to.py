"""The partner API of docs/how-to/idempotency-keys.md answers as the page says, and so does the one in examples/."""

import asyncio
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hookledger import Idempotent, Inbox
from hookledger.cli import cli
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.effects import resolve
from hookledger.store.opening import PAUSE
from tests.asgi_client import Answer, ask

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "idempotency-keys.md").read_text()
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


async def post(app: Any, body: Any, *, who: str = "acme", key: str | None = '"k-1"', path: str = "/orders") -> Answer:
    headers = [("Authorization", f"Bearer made-up-token-of-{who}"), ("Content-Type", "application/json")]
    given = [] if key is None else [("Idempotency-Key", key)]
    return await ask(app, "POST", path, json.dumps(body).encode(), [*headers, *given])


async def prepare(inbox: Inbox, *tables: str) -> None:
    await inbox.migrate()
    async with inbox.opened(handlers=1) as store:
        tx = store.transaction()
        for table in tables:
            await tx.tx.execute(table)
        await tx.commit([])


async def test_the_page_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "idempotency-keys.md", "exec"), names)
    app, guard = names["app"], names["partner_api"]
    assert isinstance(guard, Idempotent)
    assert (await post(app, {"item": "tea"})).status == 503, "before the tables are made"
    await guard.stop()
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        if program == "hookledger":
            done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
            assert done.exit_code == 0, done.output
        else:
            subprocess.run([sys.executable, *arguments], check=True)
    await asyncio.sleep(PAUSE)  # the database is not asked again before
    try:
        first, again = await post(app, {"item": "tea"}), await post(app, {"item": "tea"})
        assert (first.status, again.status) == (201, 201)
        assert first.body == again.body
        assert (await post(app, {"item": "tea"}, who="globex")).json["id"] != first.json["id"]
        assert (await post(app, {"item": "tea"}, who="nobody")).status == 401
        assert (await post(app, {"item": "tea"}, key=None)).status == 400
        [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
        problem = (await post(app, {"item": "coffee"})).json
        assert {**problem, "event": ""} == {**json.loads(shown), "event": ""}
    finally:
        await guard.stop()


async def test_the_example_charges_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "examples" / "partner_api" / "partner.py"))
    app, guard, bank = names["app"], names["partner_api"], names["BANK"]
    await prepare(guard.inbox, *names["TABLES"])
    order, payout = {"item": "tea", "cents": 450}, {"cents": 450}
    try:
        first = await post(app, order)
        assert (first.status, (await post(app, order)).body) == (201, first.body)
        bank.breaks = True
        lost = await post(app, payout, path="/payouts")
        assert (lost.status, lost.json["type"]) == (409, "urn:hookledger:idempotency:unknown-outcome")
        assert (await post(app, payout, path="/payouts")).body == lost.body
        await happened(guard.inbox, lost.json["event"])
        paid = await post(app, payout, path="/payouts")
        assert (paid.status, paid.json["paid"]) == (201, 450)
        assert (await post(app, payout, path="/payouts")).body == paid.body
        assert bank.paid == [("acme", 450)]
    finally:
        await guard.stop()


async def happened(inbox: Inbox, event_id: str) -> None:
    """As an operator who looked at the bank's statement."""
    async with inbox.opened() as store:
        context = inbox.context(store)
        [known] = (await search.find(context, event_id)).effects
        await resolve(context, by("ada", "it is in the statement"), known.effect, "happened", None)
