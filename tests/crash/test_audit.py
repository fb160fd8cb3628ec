"""Prune, erase and reconcile, killed before each of their statements: the audit log agrees with what is gone."""

import asyncio
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.model import Kind
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import SOURCE, TYPE, WORKER, Way, delivered, record, settle
from tests.crash.checker import Database
from tests.crash.killed_at import SOON, STEPS
from tests.crash.lister_app import LISTED
from tests.crash.processes import ROOT
from tests.services.forked import Forked
from tests.soak import amount

EVENTS = 12
SETTINGS = '[retention]\n{rule} = "0s"\nbatch = 5\nbatch_delay = "0s"\n'
KILLS = amount(5, 20, 1_000_000)
"""Evenly over all statements; scripts/soak kills before every one."""


class Scene:
    """One database, and commands that are killed in it."""

    def __init__(self, folder: Path, url: str, rule: str) -> None:
        """`rule`: what retention takes away as soon as it can."""
        self.url = url
        self.database = Database(url)
        self._folder = folder
        settings = folder / "hookledger.toml"
        settings.write_text(SETTINGS.format(rule=rule))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")},
            "HOOKLEDGER_CONFIG": str(settings),
            "HOOKLEDGER_DATABASE": url,
            STEPS: str(folder / "steps"),
        }

    def killed(self, step: int, *command: str) -> int:
        """The exit code of the command, killed before this statement; of 0 it is not."""
        log = self._folder / "log"
        arguments = [str(step), *command]
        process = Forked("tests.crash.killed_at", arguments, cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        try:
            return process.wait(60)
        finally:
            process.kill()

    def completed(self, *command: str, expected: int = 0) -> int:
        """Run to the end; how many statements that took."""
        code = self.killed(0, *command)
        assert code == expected, (self._folder / "log").read_text()[-2000:]
        return int((self._folder / "steps").read_text())

    def do(self, work: Callable[[Store], Any]) -> Any:
        async def run() -> Any:
            store = connect(self.url, clock=Clock())
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def count(self, table: str, where: str = "true") -> int:
        [row] = self.database.rows(f"SELECT count(*) AS n FROM {{h}}{table} WHERE {where}")
        return int(row["n"])

    def audited(self, name: str) -> list[dict[str, Any]]:
        return self.database.rows(f"SELECT * FROM {{h}}actions WHERE name = '{name}' ORDER BY id")


@pytest.fixture
def rule() -> str:
    return "events"


@pytest.fixture
def scene(database_url: str, tmp_path: Path, rule: str) -> Iterator[Scene]:
    scene = Scene(tmp_path, database_url, rule)
    yield scene
    shutil.rmtree(tmp_path, ignore_errors=True)


async def finished(store: Store, prefix: str, events: int = EVENTS) -> None:
    await record(store, *(delivered(f"{prefix}_{n}") for n in range(events)))
    while owners := await store.claim(WORKER, [Kind(SOURCE, TYPE)], 50, 60.0):
        for owner in owners:
            assert await settle(store, owner, "complete")


def steps(total: int, kills: int = KILLS) -> list[int]:
    return list(range(1, total + 1, max(1, total // kills)))


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1].replace(",", "")) if found else 0


def test_prune_is_killed_at_every_step(scene: Scene) -> None:
    command = ("prune", "--now", "--actor", "ada", "--reason", "the law")
    scene.do(lambda store: store.migrate())
    scene.do(lambda store: finished(store, "measured"))
    total = scene.completed(*command)
    for step in steps(total):
        scene.do(partial(finished, prefix=f"at_{step}"))
        scene.killed(step, *command)
        entries = scene.audited("prune")
        gone = scene.count("pruned")
        assert sum(number(r"([\d,]+) events", entry["subject"]) for entry in entries) == gone
        assert {(entry["actor"], entry["reason"]) for entry in entries} == {("ada", "the law")}
        assert not scene.do(lambda store: store.consistency.report()).imbalances
    scene.completed(*command)
    entries = scene.audited("prune")
    assert sum(number(r"([\d,]+) events", entry["subject"]) for entry in entries) == scene.count("pruned")
    assert {entry["to_state"] for entry in entries} == {"pruned", "interrupted"}, "one is left open"
    assert (scene.count("events"), scene.count("task_leases")) == (0, 0)


async def failed(store: Store, prefix: str) -> None:
    await record(store, *(delivered(f"{prefix}_{n}") for n in range(EVENTS)))
    await end(store, "fail")


async def retried(store: Store, prefix: str) -> None:
    """Each with the traceback of its first attempt."""
    await record(store, *(delivered(f"{prefix}_{n}") for n in range(EVENTS)))
    await end(store, "reschedule")
    await end(store, "complete")


async def end(store: Store, way: Way) -> None:
    owners = await store.claim(WORKER, [Kind(SOURCE, TYPE)], EVENTS, 60.0)
    assert len(owners) == EVENTS
    for owner in owners:
        assert await settle(store, owner, way, error=None if way == "complete" else "a traceback")


RULES: dict[str, tuple[Any, str, str, str]] = {
    "failed": (failed, "pruned", "true", r"([\d,]+) events"),
    "payloads": (finished, "events", "emptied_at IS NOT NULL", r"([\d,]+) events' bytes"),
    "history": (retried, "attempts", "outcome = 'retrying' AND error IS NULL", r"([\d,]+) events' tracebacks"),
}
"""What there is to take away, where it is missing then, and how the audit log counts it."""


@pytest.mark.parametrize("rule", RULES)
def test_prune_is_killed_under_every_rule(scene: Scene, rule: str) -> None:
    made, table, gone, words = RULES[rule]
    # Not --now: each round would begin with all that stayed, and be killed before it comes to what is new.
    command = ("prune", "--actor", "ada", "--reason", "the law")

    def agree() -> None:
        entries = scene.audited("prune")
        assert sum(number(words, entry["subject"]) for entry in entries) == scene.count(table, gone)
        assert {(entry["actor"], entry["reason"]) for entry in entries} == {("ada", "the law")}
        assert not scene.do(lambda store: store.consistency.report()).imbalances

    scene.do(lambda store: store.migrate())
    scene.do(partial(made, prefix="measured"))
    total = scene.completed(*command)
    agree()
    for step in steps(total, kills=min(KILLS, amount(3, 6, 1_000_000))):
        scene.do(partial(made, prefix=f"at_{step}"))
        scene.killed(step, *command)
        agree()
    scene.completed(*command)
    agree()
    assert {entry["to_state"] for entry in scene.audited("prune")} == {"pruned", "interrupted"}, "one is left open"


def test_erase_is_killed_at_every_step(scene: Scene) -> None:
    command = ("erase", "--type", TYPE, "--yes", "--actor", "ada", "--reason", "the law")
    scene.do(lambda store: store.migrate())
    scene.do(lambda store: finished(store, "measured", 3))
    total = scene.completed(*command)
    for step in steps(total):
        forget(scene)
        scene.do(lambda store: finished(store, "again", 3))
        scene.killed(step, *command)
        agrees(scene)
    scene.completed(*command)
    assert scene.count("events", "emptied_at IS NULL") == 0


def agrees(scene: Scene) -> None:
    """Each event that is empty has an entry that says who and why, and no other has one."""
    emptied = {row["id"] for row in scene.database.rows("SELECT id FROM {h}events WHERE emptied_at IS NOT NULL")}
    entries = scene.audited("erase")
    assert {entry["event_id"] for entry in entries} == emptied
    assert {(entry["actor"], entry["reason"]) for entry in entries} <= {("ada", "the law")}


def test_reconcile_is_killed_at_every_step(scene: Scene) -> None:
    command = ["reconcile", "shop", "--since", "1h", "--actor", "ada", "--reason", "an outage"]
    command += ["--app", "tests.crash.lister_app:inbox"]
    scene.do(lambda store: store.migrate())
    total = scene.completed(*command, expected=20)
    for step in steps(total):
        forget(scene)
        scene.killed(step, *command)
        imported = scene.count("deliveries", "outcome = 'reconciled'")
        runs = scene.database.rows("SELECT * FROM {h}reconciliations")
        counted = sum(number(r'"imported":(\d+)', run["counts"] or "") for run in runs)
        assert counted == imported, f"step {step}"
        assert len(scene.audited("reconcile")) >= len(runs)
        time.sleep(SOON)  # until then the dead one is believed to live
        assert scene.killed(0, *command) in (0, 20), "the next one is refused"
        entries = scene.audited("reconcile")
        assert sum(number(r"([\d,]+) imported", entry["to_state"]) for entry in entries) == LISTED
        assert {(entry["actor"], entry["reason"]) for entry in entries} == {("ada", "an outage")}
        begun = sum(entry["to_state"] == "started" for entry in entries)
        ended = sum(entry["from_state"] == "started" for entry in entries)
        assert begun == ended, "one is left open"


def forget(scene: Scene) -> None:
    for table in ("events", "identities", "deliveries", "requests", "attempts", "reconciliations", "actions"):
        scene.database.rows(f"DELETE FROM {{h}}{table}")
