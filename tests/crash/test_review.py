"""Answers to reviews, and approved runs, killed at every commit and before every statement."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.states import State
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import claimed, settle
from tests.crash.conftest import Install
from tests.crash.killed_at import COMMITS, STEPS
from tests.crash.processes import Installation, eventually
from tests.soak import amount

KILLS = amount(6, 15, 1_000_000)
"""Of a worker, evenly over its statements; scripts/soak kills before every one."""
REACHED = {"approve": "pending", "reject": "discarded", "settle": "processed"}


@pytest.fixture
def shop(install: Install, database_url: str) -> Installation:
    made = install(database_url, lease="600ms")
    made.use("tests.crash.review_app:inbox")
    return made


def do(shop: Installation, work: Callable[[Store], Any]) -> Any:
    async def run() -> Any:
        store = connect(shop.database.url, clock=Clock())
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def review(shop: Installation, key: str, *, approved: bool = False) -> None:
    """An event in review, or one that was, and waits for a worker."""

    async def work(store: Store) -> None:
        await store.know_sources(["stripe"])
        owner = await claimed(store, key)
        assert await settle(store, owner, "review", reason="the account is cancelled")
        if approved:
            await store.reviews.approve(owner.id, State.NEEDS_REVIEW, "ada", "they paid", seen=owner.claim + 1)

    do(shop, work)


def close(shop: Installation, key: str) -> None:
    """So that the next event is the only one due."""
    row = shop.database.event(key)
    if row["state"] == "pending":
        do(shop, lambda store: store.discard(row["id"], State.PENDING, "ada", "seen"))


def killed(shop: Installation, step: int, *command: str) -> int:
    return shop._start("killed", "tests.crash.killed_at", str(step), *command).exit_code()


def measured(shop: Installation, folder: Path, *command: str) -> int:
    """How many steps it takes."""
    shop.environment[STEPS] = str(folder / "steps")
    assert killed(shop, 0, *command) == 0, shop.processes[-1].log
    return int((folder / "steps").read_text())


def actions(shop: Installation, key: str) -> list[str]:
    sql = "SELECT a.name FROM {h}actions AS a JOIN {h}events AS e ON e.id = a.event_id WHERE e.key = '%s'"
    return [row["name"] for row in shop.database.rows(sql % key)]


def balanced(shop: Installation) -> None:
    assert do(shop, lambda store: store.consistency.report()).imbalances == ()


@pytest.mark.parametrize("name", REACHED)
def test_an_answer_is_killed_at_every_commit(shop: Installation, tmp_path: Path, name: str) -> None:
    """It is made and audited, or neither; made again, it is made once."""
    shop.environment[COMMITS] = "1"
    why = ("--reason", "they paid", "--actor", "ada")
    review(shop, "measured")
    total = measured(shop, tmp_path, name, "measured", *why)
    assert total >= 2, "before and after one commit at least"
    close(shop, "measured")
    for step in range(1, total + 1):
        key = f"at_{step}"
        review(shop, key)
        assert killed(shop, step, name, key, *why) != 0
        row = shop.database.event(key)
        assert (row["state"], actions(shop, key)) in (("needs_review", []), (REACHED[name], [name])), step
        again = killed(shop, 0, name, key, *why)
        assert (again == 0) is (row["state"] == "needs_review"), step
        row = shop.database.event(key)
        assert (row["state"], row["run"], actions(shop, key)) == (REACHED[name], 1 + (name == "approve"), [name])
        assert (row["approval_id"] is not None) is (name == "approve")
        close(shop, key)
    balanced(shop)


# proves R70
def test_an_approved_run_is_killed_before_its_statements(shop: Installation, tmp_path: Path) -> None:
    """Whatever dies: the handler's writes are kept once, under the one approval, and no later run has it."""
    review(shop, "measured", approved=True)
    total = measured(shop, tmp_path, "work", "--drain")
    keys = ["measured"]
    for step in range(1, total + 1, max(1, total // KILLS)):
        keys.append(f"at_{step}")
        review(shop, keys[-1], approved=True)
        killed(shop, step, "work", "--drain")
        worker = shop.work()
        eventually(lambda key=keys[-1]: shop.database.event(key)["state"] == "processed", keys[-1])  # type: ignore[misc]
        worker.kill()
        assert actions(shop, keys[-1]) == ["approve"], "asked for no second time"
    written = [row["event_key"] for row in shop.database.rows("SELECT event_key FROM written")]
    assert sorted(written) == sorted(keys)
    rows = shop.database.rows("SELECT * FROM {h}events")
    assert {(row["state"], row["run"], row["result"], row["approval_id"]) for row in rows} == {
        ("processed", 2, "approved by ada", None)
    }
    balanced(shop)

    async def replay(store: Store) -> None:
        for row in await store.search.events(limit=1000):
            await store.replay(row.id, row.state, "bob", "again", seen=row.claim)

    do(shop, replay)
    assert killed(shop, 0, "work", "--drain") == 0
    assert {row["state"] for row in shop.database.rows("SELECT state FROM {h}events")} == {"needs_review"}
    assert len(shop.database.rows("SELECT * FROM written")) == len(keys), "an approval was used twice"
