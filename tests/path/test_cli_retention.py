"""`hookledger prune` and `erase` as an operator types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hookledger.cli import cli
from hookledger.clock import NEVER, Clock
from hookledger.config import decode
from hookledger.errors import ConfigError, WrongState
from hookledger.inbox import Inbox
from hookledger.operate.errors import NotFound
from hookledger.operate.retention.settings import Limits, limits
from hookledger.store.connect import connect
from tests.builders import Way, claim, delivered, record, settle

SETTINGS = """
[retention]
events = "0s"
"""


@pytest.fixture
async def inbox(sqlite_url: str, tmp_path: Path) -> list[str]:
    """One processed event, one that failed, one that waits; how a command finds them."""
    store = connect(sqlite_url, clock=Clock())
    await store.open()
    await store.migrate()
    await store.know_sources(["stripe"])
    ways: dict[str, Way] = {"done": "complete", "broken": "fail"}
    for key, way in ways.items():
        await record(store, delivered(key, b'{"who": "eve"}'))
        assert await settle(store, await claim(store), way)
    await record(store, delivered("waiting"))
    await store.close()
    settings = tmp_path / "hookledger.toml"
    settings.write_text(SETTINGS)
    return ["--config", str(settings), "--database", sqlite_url]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    return result.stdout


async def _in_thread(*arguments: str) -> str:
    import asyncio

    return await asyncio.to_thread(run, *arguments)


async def test_prune_says_first_and_then_does(inbox: list[str]) -> None:
    dry = json.loads(await _in_thread("prune", "--dry-run", "--json", *inbox))
    assert (dry["dry_run"], dry["events"]) == (True, 1)
    done = json.loads(await _in_thread("prune", "--json", "--reason", "spring", "--actor", "ada", *inbox))
    assert done["events"] == 1
    with pytest.raises(NotFound, match="was pruned on"):
        await _in_thread("show", "done", *inbox)
    left = json.loads(await _in_thread("events", "--json", *inbox))
    assert {row["key"] for row in left} == {"broken", "waiting"}
    assert "1 pruned (1 processed)" in await _in_thread("doctor", *inbox)
    with pytest.raises(ConfigError, match="unknown source 'nobody'"):
        await _in_thread("prune", "--source", "nobody", *inbox)


async def test_erase_one_or_all_that_are_meant(inbox: list[str]) -> None:
    why = ("--reason", "she asked", "--actor", "ada")
    with pytest.raises(WrongState, match="nothing was erased: 2 events match, not 3"):
        await _in_thread("erase", "--text", "eve", "--count", "3", *why, *inbox)
    dry = json.loads(await _in_thread("erase", "--text", "eve", "--dry-run", "--json", *why, *inbox))
    assert len(dry["events"]) == 2
    assert len(json.loads(await _in_thread("events", "--text", "eve", "--json", *inbox))) == 2
    done = json.loads(await _in_thread("erase", "--text", "eve", "--count", "2", "--json", *why, *inbox))
    assert set(done["events"]) == set(dry["events"])
    assert json.loads(await _in_thread("events", "--text", "eve", "--json", *inbox)) == []
    shown = json.loads(await _in_thread("show", "done", "--json", *inbox))
    assert shown["event"]["emptied_at"] and shown["request"]["body"] == ""
    assert "erased on" in await _in_thread("show", "done", *inbox)
    with pytest.raises(WrongState, match="only discarded, failed, processed, skipped"):
        await _in_thread("erase", "waiting", *why, *inbox)


def test_settings_of_retention() -> None:
    settings = decode({"retention": {"events": "30d", "payloads": "never"}})
    assert limits(settings.retention) == Limits(events=30 * 86400.0)
    inbox = Inbox("sqlite:///nothing.db", settings=settings)
    stripe = inbox.source(
        "stripe", provider="stripe", secrets=["whsec_made_up"], retention={"events": "never", "history": "1d"}
    )
    assert limits(settings.retention, stripe.settings.retention) == Limits(history=86400.0, events=NEVER)
    with pytest.raises(ConfigError, match=r"unknown key retention\.bytes: the known keys are events, failed"):
        inbox.source("s2", provider="stripe", secrets=["whsec_made_up"], retention={"bytes": "1d"})
    with pytest.raises(ConfigError, match="not a duration"):
        inbox.source("s3", provider="stripe", secrets=["whsec_made_up"], retention={"events": "soon"})
    with pytest.raises(ConfigError, match=r"retention\.event"):
        decode({"retention": {"event": "1d"}})
