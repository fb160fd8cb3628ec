"""What docs/how-to/versions.md shows is what happens."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hookledger import Inbox, State
from hookledger.cli import cli
from hookledger.config import decode
from hookledger.store.connect import connect
from tests.asgi_client import Site, stripe_event

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "versions.md").read_text()
[TOML] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[SHOWN] = re.findall(r"```console\n\$ hookledger lag\n(.*?)\$ ", PAGE, re.DOTALL)


def words(line: str) -> list[str]:
    """Without how long ago it was."""
    return re.sub(r"[\d.]+ (s|min)\b", "TIME", line).split()


async def test_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sqlite_url: str) -> None:
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", "whsec_made_up_for_the_docs")
    names: dict[str, Any] = {}
    exec(compile(CODE.replace("sqlite:///inbox.db", sqlite_url), "versions.md", "exec"), names)
    inbox: Inbox = names["inbox"]
    assert decode(tomllib.loads(TOML)).sources["stripe"] == inbox.sources["stripe"].settings
    store = connect(sqlite_url, clock=inbox.clock)
    await store.open(handlers=1)
    transaction = store.transaction()
    await transaction.tx.execute("CREATE TABLE payments (invoice TEXT, cents INTEGER)")
    await transaction.commit([])
    await store.close()

    site = Site(inbox)
    invoice = {"object": {"id": "in_1", "amount_paid": 7, "total": 8}}
    for key, version in (("a", "2024-06-20"), ("b", "2022-11-15"), ("c", "2025-03-31"), ("d", "2025-03-31")):
        await site.deliver(stripe_event(key, api_version=version, data=invoice))
    await site.work()
    assert [row.key for row in await site.events() if row.state is State.PROCESSED] == ["b", "a"]
    async with inbox.opened() as opened:
        await opened.register("another", inbox.routes.handles())

    async def run(*arguments: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--database", sqlite_url])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert [words(line) for line in (await run("lag")).splitlines()] == [words(line) for line in SHOWN.splitlines()]
    assert len((await run("events", "--type", "invoice.paid", "--version", "2025-03-31")).splitlines()) == 3
    await site.deliver(stripe_event("e", api_version="2019-05-16", data=invoice))
    await run("bulk", "discard", "--type", "invoice.paid", "--version", "2019-*", "--reason", "gone", "--yes")
    await site.work()
    assert {row.key: row.state for row in await site.events()} == {
        **dict.fromkeys("ab", State.PROCESSED),
        **dict.fromkeys("cd", State.PENDING),
        "e": State.DISCARDED,
    }
    await inbox.asgi.stop()
