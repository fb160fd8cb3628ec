"""`events` with every option of a filter, `failures` and `lag`, in this process on a real file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hookledger.cli import cli, exits
from hookledger.clock import Clock
from hookledger.store.connect import connect
from tests.builders import claimed, record, recorded, settle
from tests.builders import delivered as delivery

Ask = Any


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    url = f"sqlite:///{tmp_path / 'inbox.db'}"

    async def fill() -> None:
        store = connect(url, clock=Clock())
        await store.open()
        await store.migrate()
        for n in range(3):
            owner = await claimed(store, f"evt_{n}", object_id=f"sub_{n}")
            await settle(store, owner, "fail", reason=f"KeyError: 'cus_{n}'")
        await recorded(store, "evt_9", b'{"mail":"ada@example.test"}', type="mail.sent")
        await record(store, delivery("evt_9", b'{"mail":"ada@example.test"}', type="mail.sent"))
        await store.close()

    asyncio.run(fill())

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, [*words, "--database", url])

    return run


def keys(result: Result) -> list[str]:
    assert result.exit_code == exits.OK, result.output
    return [row["key"] for row in json.loads(result.stdout)]


def test_every_option(ask: Ask) -> None:
    listed = ("events", "--json")
    everything = ["evt_9", "evt_2", "evt_1", "evt_0"]
    assert keys(ask(*listed)) == keys(ask(*listed, "--source", "stripe")) == everything
    assert keys(ask(*listed, "--state", "failed", "--state", "pending")) == everything
    assert keys(ask(*listed, "--state", "pending")) == keys(ask(*listed, "--type", "mail.*")) == ["evt_9"]
    assert keys(ask(*listed, "--key", "evt_1")) == keys(ask(*listed, "--object", "sub_1")) == ["evt_1"]
    assert keys(ask(*listed, "--text", "ada@")) == ["evt_9"]
    assert keys(ask(*listed, "--error", "cus_2")) == ["evt_2"]
    assert keys(ask(*listed, "--cause", "KeyError: …")) == everything[1:]
    assert keys(ask(*listed, "--since", "2h ago")) == keys(ask(*listed, "--since", "2020-01-01")) == everything
    assert keys(ask(*listed, "--until", "2020-01-01T00:00:00+02:00")) == []
    assert keys(ask(*listed, "--attention")) == everything[1:], "they failed"
    assert keys(ask(*listed, "--effect", "charge")) == []
    assert json.loads(ask("events", "--counts", "--state", "failed", "--json").stdout) == {"count": 3}
    assert "There may be more: --before" in ask("events", "--limit", "2").stderr


@pytest.mark.parametrize("value", ["yesterday", "2026-13-01", "99999999999999d", ""])
def test_a_moment_that_is_none(ask: Ask, value: str) -> None:
    refused = ask("events", "--since", value)
    assert refused.exit_code == exits.USAGE
    assert "is not a time" in refused.stderr


def test_failures_say_what_to_type(ask: Ask) -> None:
    [group] = json.loads(ask("failures", "--json").stdout)
    assert (group["cause"], group["count"], group["failed"]) == ("KeyError: …", 3, 3)
    shown = ask("failures")
    assert f"hookledger show {group['sample']}" in shown.stderr
    assert "--cause 'KeyError: …'" in shown.stderr
    assert "No events are failing" in ask("failures", "--source", "other").stderr


def test_lag(ask: Ask) -> None:
    [lag] = json.loads(ask("lag", "--json").stdout)
    assert (lag["kind"], lag["pending"]) == ({"source": "stripe", "type": "mail.sent", "version": ""}, 1)
    assert "mail.sent" in ask("lag").stdout
