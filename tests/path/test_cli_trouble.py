"""Trouble is loud: what `doctor`, `events --attention` and `effects` say of it, and trying an effect now."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hookledger.cli import exits
from hookledger.config import load
from hookledger.inbox import Inbox
from hookledger.model import Claimed
from hookledger.states import EffectState, Repeat, State
from hookledger.store.protocol import Store
from tests.builders import claimed, settle
from tests.ledger import LATER, finish, plan, reach, take
from tests.path.test_cli_quarantine import Desk, desk  # noqa: F401 - a fixture

WHY = ("--reason", "the bank is back", "--actor", "ada")
LONG = "order/" + "x" * 120 + " of 'Ada'"


def ledger(work: Callable[[Store, Inbox], Awaitable[Any]]) -> Any:
    """On the store itself, as a worker would."""

    async def act() -> Any:
        inbox = Inbox(settings=load(Path("hookledger.toml")))
        async with inbox.opened(handlers=1) as store:
            return await work(store, inbox)

    return asyncio.run(act())


async def trouble(store: Store, inbox: Inbox) -> dict[str, str]:
    """Two unknown calls, one of them left to an operator, one failed, one planned for later; ids by key."""
    owners: dict[str, Claimed] = {}
    for key, state, repeat in (
        ("left", EffectState.UNKNOWN, Repeat.NEVER),
        ("refused", EffectState.FAILED, Repeat.SAFE),
        (LONG, EffectState.FAILED, Repeat.SAFE),
    ):
        owner = await claimed(store, key[:20], type=f"t{len(owners)}")
        await reach(store, inbox.clock, owner, state, LATER, key, repeat=repeat)
        owners[key] = owner
    owner = owners["at it"] = await claimed(store, "at it", type="t9")
    [identity] = await plan(store, owner, "at it", repeat=Repeat.KEYED)
    await take(store)
    await finish(store, identity, 1, "unknown", due_in=600.0, error="TimeoutError: no answer")
    for one in owners.values():
        await settle(store, one, "complete")
    return {key: str(owner.id) for key, owner in owners.items()}


def said(found: list[dict[str, str]], about: str) -> list[tuple[str, str]]:
    return [(one["level"], one["says"]) for one in found if one["about"] == about]


def test_no_event_or_effect_needs_attention(desk: Desk) -> None:  # noqa: F811
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.OK
    assert said(ended.json, "workers") == [("warn", "none is alive; nothing is due")]
    assert said(ended.json, "events") == [("ok", "none is failed, in review or retrying")]
    assert desk.run("doctor", "--fail-on", "warn").code == exits.PROBLEM
    assert desk.run("effects", "--json").json == []
    assert "No effects." in desk.run("effects").err
    assert "may not be written yet: try again" in desk.run("rejections").err


# proves R73
def test_failed_and_reviewed_events_are_loud(desk: Desk) -> None:  # noqa: F811
    async def fail(store: Store, inbox: Inbox) -> list[str]:
        del inbox
        ids = []
        for number, way in enumerate(("fail", "fail", "review")):
            owner = await claimed(store, f"evt_{number}", type=f"t{number}")
            await settle(store, owner, way)  # type: ignore[arg-type]
            ids.append(str(owner.id))
        return ids

    ids = ledger(fail)
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.PROBLEM
    failed, review = said(ended.json, "events")
    assert (failed[0], review[0]) == ("problem", "problem")
    assert re.fullmatch(rf"2 failed, the oldest since 20\d\d-.* UTC: {ids[0]}", failed[1])
    assert review[1].startswith("1 in review: an operator must decide")
    assert desk.run("doctor", "--fail-on", "never").code == exits.OK
    listed = desk.run("events", "--attention", "--json").json
    assert sorted(row["id"] for row in listed) == sorted(ids)
    assert desk.run("bulk", "retry", "--attention", "--count", "3", "--yes", *WHY).code == exits.OK


# proves R73
def test_effects_are_listed_and_tried(desk: Desk) -> None:  # noqa: F811
    ids = ledger(trouble)
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.PROBLEM
    unknown, failed = said(ended.json, "effects")
    assert (unknown[0], unknown[1].startswith("2 with an unknown outcome")) == ("problem", True)
    assert (failed[0], failed[1].startswith("2 of the outbox failed")) == ("problem", True)
    assert {row["id"] for row in desk.run("events", "--attention", "--json").json} == set(ids.values())
    listed = desk.run("effects", "--state", "unknown", "--json").json
    assert [(one["key"], one["state"], one["calls"], one["event_id"]) for one in listed] == [
        ("at it", "unknown", 1, ids["at it"]),
        ("left", "unknown", 1, ids["left"]),
    ]
    assert [one["next"].split()[0] for one in listed] == ["effects", "resolve"]
    assert listed[0]["why"] == "TimeoutError: no answer"
    assert len(desk.run("effects", "--json").json) == 4
    assert desk.run("effects", "--name", "charge", "--source", "github", "--json").json == []

    first = desk.run("effects", "--limit", "3", "--json")
    [cursor] = re.findall(r"--before (\S+)", first.err)
    assert [one["key"] for one in desk.run("effects", "--before", cursor, "--json").json] == ["left"]
    assert desk.run("effects", "--before", "evt_1").code == exits.CONFIG

    refused = desk.run("effects", "try", ids["left"], "charge", *WHY)
    assert refused.code == exits.NOT_ALLOWED
    assert "its policy is never" in refused.err
    assert f"hookledger resolve {ids['left']} charge:left --happened or --did-not-happen" in refused.err
    tried = desk.run("effects", "try", ids["refused"], "charge:refused", *WHY)
    assert tried.code == exits.OK, tried.err
    assert "was failed, is planned: a worker performs it now" in tried.err
    assert "No worker is alive" in tried.err
    [now] = desk.run("effects", "--state", "planned", "--json").json
    assert (now["key"], now["tries"]) == ("refused", 0)
    shown = desk.run("show", ids["refused"], "--json").json
    [action] = shown["actions"]
    assert (action["name"], action["actor"], action["subject"]) == ("try", "ada", "charge:refused")
    assert (action["from_state"], action["to_state"], action["reason"]) == ("failed", "planned", "the bank is back")
    assert not shown["event"]["attention"]
    assert desk.run("effects", "try", ids["refused"], "charge").code == exits.USAGE, "a reason is needed"


def on_terminal(columns: int, *arguments: str) -> str:
    """What `hookledger …` prints on a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "hookledger", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        parts = []
        with suppress(OSError):  # how a terminal says that its last writer is gone
            while part := os.read(ours, 65536):
                parts.append(part)
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", b"".join(parts).decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_nothing_is_cut(desk: Desk, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:  # noqa: F811
    ids = ledger(trouble)
    monkeypatch.delenv("COLUMNS", raising=False)
    listed = on_terminal(columns, "effects")
    for one in desk.run("effects", "--json").json:
        for whole in (f"charge:{one['key']}", one["state"], one["event_id"], f"later, {one['repeat']}"):
            assert whole in listed, "in one piece, to be copied"
    suggested = listed[listed.index("To retry one now:") :].partition(":")[2]
    command = shlex.split(suggested.replace("\\\n", " "))
    assert (command[:3], command[-1]) == (["hookledger", "effects", "try"], "WHY")
    said = on_terminal(columns, "doctor")
    assert max(map(len, said.splitlines())) <= columns
    assert "…" not in said
    for words in ("2 with an unknown outcome", "2 of the outbox failed", ids["left"]):
        assert words.replace(" ", "") in re.sub(r"\s+", "", said)


def test_a_circuit_in_the_way_is_told(desk: Desk) -> None:  # noqa: F811
    ids = ledger(trouble)
    assert desk.run("circuits", "trip", "bank", *WHY).code == exits.OK
    tried = desk.run("effects", "try", ids["refused"], "charge", *WHY)
    assert "The circuit of bank is open" in tried.err
    [(level, words)] = said(desk.run("doctor", "--json").json, "circuit bank")
    assert (level, words.startswith("tripped by an operator since")) == ("warn", True)


def test_states_name_what_is_done_only_when_asked(desk: Desk) -> None:  # noqa: F811
    async def done(store: Store, inbox: Inbox) -> None:
        owner = await claimed(store, "evt_1")
        await reach(store, inbox.clock, owner, EffectState.DONE, LATER, "k")
        await settle(store, owner, "complete")
        assert (await store.counts())[State.PROCESSED] == 1

    ledger(done)
    assert desk.run("effects", "--json").json == []
    [one] = desk.run("effects", "--state", "done", "--json").json
    assert (one["state"], one["next"]) == ("done", "")
