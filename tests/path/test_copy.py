"""`hookledger copy` as an operator types it, and what receivers, workers and operators are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest

from hookledger.cli import exits
from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.copy import Copy, CopyState
from hookledger.store.url import without_password
from tests.asgi_client import Site, ask, stripe_event
from tests.builders import Raw, claimed, delivered, record
from tests.crash.checker import Database
from tests.path.conftest import SECRET, MakeSite
from tests.path.test_cli import Run, environment, free_port, run, shop  # noqa: F401 - fixtures
from tests.path.test_health import eventually

WHY = ("--reason", "a bigger machine", "--actor", "ada")
MOVED = "this inbox was moved to another database: "


async def _recorded(url: str, *keys: str) -> None:
    store = connect(url, clock=Clock())
    await store.open()
    await record(store, *map(delivered, keys))
    await store.close()


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/target.db"


@pytest.fixture
def filled(shop: Run, tmp_path: Path) -> Run:  # noqa: F811
    asyncio.run(_recorded(f"sqlite:///{tmp_path}/shop.db", "evt_1", "evt_2"))
    return shop


def test_copy_and_use_the_target(filled: Run, target: str) -> None:
    ended = filled("copy", "--to", target, "--yes", "--json", *WHY)
    assert ended.returncode == exits.OK, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["state"], said["target"], said["rows"]["events"]) == ("complete", target, 2)
    for command in (("receive",), ("work", "--drain"), ("api",), ("events",), ("pause", "stripe", *WHY)):
        refused = filled(
            *command, SECRET=SECRET, HOOKLEDGER_PORT=str(free_port()), HOOKLEDGER_OPERATOR_PORT=str(free_port())
        )
        assert refused.returncode == exits.UNAVAILABLE, command
        assert f"{MOVED}{target}; use that one" in refused.stderr
    listed = filled("events", "--json", HOOKLEDGER_DATABASE=target)
    assert {event["key"] for event in json.loads(listed.stdout)} == {"evt_1", "evt_2"}
    assert filled("work", "--drain", HOOKLEDGER_DATABASE=target).returncode == exits.OK
    actions = Database(target).rows("SELECT actor, reason, subject, from_state, to_state FROM actions ORDER BY id")
    assert [(row["from_state"], row["to_state"]) for row in actions] == [
        ("open", "moving"),
        ("incomplete", "complete"),
    ]
    assert {(row["actor"], row["reason"]) for row in actions} == {("ada", "a bigger machine")}
    assert filled("copy", "--to", target, "--yes", *WHY).returncode == exits.OK, "it is complete already"


def test_an_incomplete_target_is_not_used(filled: Run, target: str, tmp_path: Path) -> None:
    async def begin() -> Copy:
        source, into = (connect(url, clock=Clock()) for url in (f"sqlite:///{tmp_path}/shop.db", target))
        for store in (source, into):
            await store.open()
        await into.migrate()
        begun = await source.copies.move(target, Audit("ada", "why"))
        received = await into.copies.receive(begun, "the shop")
        for store in (source, into):
            await store.close()
        return received

    assert asyncio.run(begin()).state is CopyState.INCOMPLETE
    for command in (("receive",), ("work", "--drain"), ("api",)):
        refused = filled(*command, SECRET=SECRET, HOOKLEDGER_DATABASE=target)
        assert refused.returncode == exits.UNAVAILABLE
        assert "this inbox is an incomplete copy of another database: the shop" in refused.stderr
    for url, says in ((target, "is an incomplete copy"), ("", "is being moved")):
        told = filled("doctor", "--json", **({"HOOKLEDGER_DATABASE": url} if url else {}))
        assert told.returncode == exits.PROBLEM
        [finding] = json.loads(told.stdout)
        assert f"this inbox {says}" in finding["says"]
        assert "hookledger copy" in finding["do"]
    ended = filled("copy", "--to", target, "--abandon", "--yes", *WHY)
    assert ended.returncode == exits.OK, ended.stderr
    assert filled("events").returncode == exits.OK
    assert "drop it" in filled("events", HOOKLEDGER_DATABASE=target).stderr


def test_what_it_refuses(filled: Run, target: str, tmp_path: Path) -> None:
    asked = filled("copy", "--to", target, *WHY)
    assert asked.returncode == exits.USAGE
    assert "--yes" in asked.stderr
    assert filled("copy", "--to", target, "--yes").returncode == exits.USAGE, "without a reason"
    assert filled("copy", "--to", target, "--yes", "--reason", " ").returncode == exits.CONFIG
    assert filled("copy", "--to", "mysql://x", "--yes", *WHY).returncode == exits.CONFIG
    assert filled("copy", "--to", target, "--abandon", "--yes", *WHY).returncode == exits.NOT_ALLOWED
    assert filled("copy", "--to", f"sqlite:///{tmp_path}/shop.db", "--yes", *WHY).returncode == exits.NOT_ALLOWED
    store = connect(f"sqlite:///{tmp_path}/shop.db", clock=Clock())

    async def hold() -> None:
        await store.open()
        await claimed(store, "held", type="t.held")
        await store.close()

    asyncio.run(hold())
    busy = filled("copy", "--to", target, "--yes", *WHY)
    assert busy.returncode == exits.NOT_ALLOWED
    assert "1 events are processing and 0 effects are started: stop all workers" in busy.stderr
    assert filled("events").returncode == exits.OK
    assert not Path(target.removeprefix("sqlite:///")).exists()


def test_other_programs_can_read_the_file_of_a_moved_inbox(filled: Run, target: str, tmp_path: Path) -> None:
    """Also those with an old SQLite: the user's own tables are in the same file."""
    assert filled("copy", "--to", target, "--yes", *WHY).returncode == exits.OK
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (2,)
        triggers = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '%RAISE%'"
        ).fetchall()
        assert triggers
        # Before SQLite 3.47 RAISE takes nothing but a literal: the whole file is unreadable otherwise.
        assert all(re.search(r"RAISE\(ABORT, '(?:[^']|'')*'\); END$", sql) for (sql,) in triggers)
        with pytest.raises(sqlite3.IntegrityError, match=f"{MOVED}{target}; use that one"):
            connection.execute("DELETE FROM events")


def test_it_is_abandoned_only_with_its_own_target(filled: Run, target: str, tmp_path: Path) -> None:
    async def begin() -> None:
        source = connect(f"sqlite:///{tmp_path}/shop.db", clock=Clock())
        await source.open()
        await source.copies.move(target, Audit("ada", "why"))
        await source.close()

    asyncio.run(begin())
    other = f"sqlite:///{tmp_path}/live.db"
    refused = filled("copy", "--to", other, "--abandon", "--yes", *WHY)
    assert refused.returncode == exits.NOT_ALLOWED
    assert f"is being copied to {target}, not to {other}" in " ".join(refused.stderr.split())
    ended = filled("copy", "--to", target, "--abandon", "--yes", *WHY)
    assert ended.returncode == exits.OK
    assert f"{target} has nothing of this copy" in " ".join(ended.stderr.split())


def test_a_target_that_cannot_be_reached_is_named_and_may_be_abandoned(filled: Run, tmp_path: Path) -> None:
    lost = "postgresql://127.0.0.1:1/nowhere"

    async def begin() -> None:
        source = connect(f"sqlite:///{tmp_path}/shop.db", clock=Clock())
        await source.open()
        await source.copies.move(lost, Audit("ada", "why"))
        await source.close()

    asyncio.run(begin())
    for abandon in ((), ("--abandon",)):
        ended = filled("copy", "--to", lost, *abandon, "--yes", *WHY)
        assert ended.returncode == exits.UNAVAILABLE
        assert f"target {lost}: cannot connect" in " ".join(ended.stderr.split())
    assert filled("copy", "--to", lost, "--target-lost", "--yes", *WHY).returncode == exits.USAGE
    ended = filled("copy", "--to", lost, "--abandon", "--target-lost", "--yes", *WHY)
    assert ended.returncode == exits.OK, ended.stderr
    assert f"{lost} was not reached" in " ".join(ended.stderr.split())
    assert filled("pause", "stripe", *WHY).returncode == exits.OK, "the source can be written again"


def test_without_password() -> None:
    shown = {
        "postgresql://ada:secret@db.example:5432/inbox?sslmode=require": "postgresql://db.example:5432/inbox",
        "postgresql:///inbox?host=/run/pg&password=secret": "postgresql:///run/pg/inbox",
        "postgresql:///?host=db.example&port=6432&dbname=inbox&user=ada": "postgresql://db.example:6432/inbox",
        "postgresql://ada:sec/ret@db.example/inbox": "postgresql://…",
        "postgresql://ada:sec?ret@db.example/inbox": "postgresql://…",
        "postgresql://ada:sec#ret@db.example/inbox": "postgresql://…",
        "postgresql://ada:sec@ret@db.example/inbox": "postgresql://db.example/inbox",
        "postgresql://[secret": "postgresql://…",
    }
    assert {url: without_password(url) for url in shown} == shown
    assert without_password("sqlite:///inbox.db") == f"sqlite:///{Path.cwd()}/inbox.db"


async def test_deliveries_get_503_and_readyz_says_why(site_on: MakeSite, database_url: str) -> None:
    site: Site = await site_on(database_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    assert (await site.deliver(stripe_event("evt_1"))).status == 202
    async with site.inbox.opened() as store:
        await store.copies.move("elsewhere", Audit("ada", "why"))
        before = await Raw(store).all("deliveries")
        for event in ("evt_1", "evt_2"):
            answer = await site.deliver(stripe_event(event))
            assert (answer.status, "retry-after" in answer.headers) == (503, True)
        assert await Raw(store).all("deliveries") == before
    answer = await eventually(site.inbox, 503)
    assert answer.json["status"] == "not ready"
    assert answer.json["problem"].startswith("this inbox is being moved to another database: elsewhere")
    assert (await ask(site.inbox.asgi, "GET", "/readyz")).json == {"status": "not ready"}
