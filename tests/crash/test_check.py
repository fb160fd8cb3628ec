"""The consistency check, killed with -9 anywhere: the next process resumes it, and its result is whole."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookledger.cli.exits import NOT_ALLOWED, PROBLEM
from hookledger.store.ops.rules import WALKS
from hookledger.store.protocol import Store
from tests.builders import Raw, delivered, record
from tests.crash.processes import PATIENCE, Installation, eventually
from tests.crash.test_audit import Scene, finished, steps
from tests.soak import amount

EVENTS = 40
COMMAND = ("check", "--json")


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    yield Scene(tmp_path, database_url, "events")


async def damaged(store: Store) -> None:
    """Half of the requests are lost, and every attempt is another's."""
    await finished(store, "evt", EVENTS)
    await record(store, *(delivered(f"evt_{n}") for n in range(0, EVENTS, 3)))
    raw = Raw(store)
    [(middle,)] = await raw.run(f"SELECT id FROM requests ORDER BY id LIMIT 1 OFFSET {EVENTS // 2}")
    ident = f"x'{middle.hex()}'" if isinstance(middle, bytes) else f"'{middle}'"
    await raw.run(f"DELETE FROM requests WHERE id < {ident}")
    await raw.run("UPDATE attempts SET claim = 99")


EXPECTED = {
    "requests_missing": EVENTS // 2,
    "attempts_astray": EVENTS,
    "events_without_attempt": EVENTS,
}


def stored(scene: Scene) -> dict[str, Any]:
    [check] = scene.database.rows("SELECT * FROM {h}consistency_checks ORDER BY id DESC LIMIT 1")
    return check


def violations(scene: Scene, check: dict[str, Any]) -> dict[str, int]:
    found = "SELECT c.id, v.rule, v.count FROM {h}consistency_violations AS v "
    found += "JOIN {h}consistency_checks AS c ON c.id = v.check_id"
    return {row["rule"]: row["count"] for row in scene.database.rows(found) if row["id"] == check["id"]}


def test_a_check_is_killed_at_every_step(scene: Scene, tmp_path: Path) -> None:
    scene.do(lambda store: store.migrate())
    scene.do(damaged)
    total = scene.completed(*COMMAND, expected=PROBLEM)
    whole = stored(scene)
    assert violations(scene, whole) == EXPECTED
    assert whole["row_count"] == sum(scene.count(walk.table) for walk in WALKS.values() if not walk.wide)
    resumed = 0
    for step in steps(total, amount(6, 20, 1_000_000)):
        before = stored(scene)["id"]
        scene.killed(step, *COMMAND)
        deadline = time.monotonic() + PATIENCE
        while (code := scene.killed(0, *COMMAND)) == NOT_ALLOWED:  # until the lease of the dead one is over
            assert time.monotonic() < deadline
        assert code == PROBLEM, (tmp_path / "log").read_text()[-2000:]
        check = stored(scene)
        assert (check["ended_at"] is not None, check["problem"], check["position"]) == (True, None, None)
        assert violations(scene, check) == EXPECTED
        assert check["row_count"] == whole["row_count"]
        resumed += check["id"] != before and check["fence"] == 2
    assert resumed, "none was killed in the middle"


def test_the_next_worker_resumes_the_check_of_a_killed_one(installation: Installation) -> None:
    folder = installation.folder / "scene"
    folder.mkdir()
    scene = Scene(folder, installation.database.url, "events")
    scene.do(damaged_more)
    installation.use("tests.crash.check_app:inbox")
    installation.set('[consistency]\ninterval = "100ms"')

    def full() -> dict[str, Any]:
        """The full check, as it is stored; nothing before it begins."""
        rows = scene.database.rows("SELECT * FROM {h}consistency_checks WHERE kind = 'full'")
        return rows[0] if rows else {}

    worker = installation.work()
    eventually(lambda: full().get("position"), "the check has come somewhere")
    worker.kill()
    halfway = full()
    assert halfway["ended_at"] is None, "it was over before the kill"
    assert json.loads(halfway["position"])["walk"] in WALKS
    # As if a minute had passed.
    scene.database.rows("UPDATE {h}consistency_checks SET leased_until = started_at WHERE ended_at IS NULL")
    installation.work()
    eventually(lambda: full()["ended_at"], "the check is resumed")
    ended = full()
    assert (ended["id"], ended["fence"], ended["problem"]) == (halfway["id"], 2, None)
    assert ended["holder"] != halfway["holder"]
    assert violations(scene, ended) == {"requests_missing": MANY}
    assert ended["row_count"] >= sum(scene.count(table) for table in ("events", "deliveries", "identities"))


MANY = amount(4000, 4000, 20_000)


async def damaged_more(store: Store) -> None:
    for start in range(0, MANY, 500):
        await record(store, *(delivered(f"evt_{n}", skip="observed") for n in range(start, start + 500)))
    await Raw(store).run("DELETE FROM requests")
