"""Shuffled and duplicated events of many entities, and workers that are killed: none ends with an old version."""

import json
import random
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.crash import order_app
from tests.crash.checker import check_books
from tests.crash.processes import PATIENCE, Installation, Process
from tests.services.ports import free_port
from tests.soak import amount

EVENTS, ENTITIES = amount(200, 1000, 10_000), amount(10, 50, 500)
CONNECTIONS, WORKERS = amount(8, 16, 32), amount(2, 4, 4)
KILL_EVERY = 2.0
"""Seconds."""
LONG = PATIENCE + EVENTS / 20


def load() -> list[dict[str, Any]]:
    """Each entity's versions without gaps, all shuffled; the time of an event has whole seconds."""
    made = [
        {
            "id": f"evt_{n:05}",
            "type": "change",
            "source": "stripe",
            "created": 1_700_000_000 + n,
            "do": {"entity": f"e_{n % ENTITIES}", "version": n // ENTITIES + 1},
        }
        for n in range(EVENTS)
    ]
    random.Random(16).shuffle(made)
    return made


class Workers:
    """Several, of which one is killed once the first event is processed, and then every two seconds."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._running: list[Process] = [installation.work() for _ in range(WORKERS)]
        self.kills = 0

    def until_done(self, sending: Process | None = None) -> None:
        """Until nothing is sent any longer, and all is processed."""
        deadline = time.monotonic() + LONG
        killed = time.monotonic()
        while (sending is not None and sending.running) or self._installation.database.unfinished():
            assert time.monotonic() < deadline, self._installation.database.states()
            begun = self.kills or self._installation.database.states()["processed"]
            if begun and (not self.kills or time.monotonic() - killed > KILL_EVERY):
                place = self.kills % WORKERS
                self._running[place].kill()
                self._running[place] = self._installation.work()
                self.kills += 1
                killed = time.monotonic()
            time.sleep(0.1 if self.kills else 0.01)


def newest(installation: Installation) -> dict[str, int]:
    return {row["entity"]: row["version"] for row in installation.database.rows("SELECT entity, version FROM newest")}


def expected() -> dict[str, int]:
    return {event["do"]["entity"]: EVENTS // ENTITIES for event in load()}


def check(installation: Installation) -> None:
    assert installation.database.states() == {"processed": EVENTS}
    assert newest(installation) == expected()
    check_books(installation.database)


# proves R35, R60
@pytest.mark.parametrize("way", ["newer", "ordered and newer"])
def test_the_newest_version_stays(installation: Installation, way: str) -> None:
    installation.database.rows(order_app.TABLES)
    installation.use("tests.crash.order_app:inbox", ORDER=way)
    installation.receive()
    workers = Workers(installation)
    sender, log = installation.start_sending(load(), connections=CONNECTIONS, times=2, deadline=LONG)
    workers.until_done(sender)
    assert sender.exit_code(LONG) == 0, log.statuses()
    workers.until_done()
    assert workers.kills > 0
    check(installation)
    if "ordered" in way:
        never_overlap(installation)


# proves R36
def test_ordered_events_run_by_version_and_never_overlap(installation: Installation) -> None:
    """All are here before the workers start, so that order alone suffices."""
    installation.database.rows(order_app.TABLES)
    installation.use("tests.crash.order_app:inbox", ORDER="ordered")
    installation.receive()
    installation.send(*load(), connections=CONNECTIONS, times=2, deadline=LONG)
    workers = Workers(installation)
    workers.until_done()
    assert workers.kills > 0
    check(installation)
    runs = never_overlap(installation)
    for attempts in runs.values():
        done = [one["created"] for one in attempts if one["outcome"] == "processed"]
        assert done == sorted(done)


def never_overlap(installation: Installation) -> dict[str, list[dict[str, Any]]]:
    """The attempts of each entity, one after the other, as the database has them."""
    found: dict[str, list[dict[str, Any]]] = {}
    known = {event["id"]: event for event in load()}
    rows = installation.database.rows(
        "SELECT e.key, a.started_at, a.ended_at, a.outcome "
        "FROM {h}attempts AS a JOIN {h}events AS e ON e.id = a.event_id"
    )
    for row in rows:
        sent = known[row["key"]]
        found.setdefault(sent["do"]["entity"], []).append({**row, "created": sent["created"]})
    for attempts in found.values():
        attempts.sort(key=lambda one: one["started_at"])
        for before, after in pairwise(attempts):
            assert before["ended_at"] <= after["started_at"]
    return found


def test_the_present_state_is_never_replaced_by_an_older_one(installation: Installation) -> None:
    """Fetched from a provider that answers slowly and with 429; the ticket decides."""
    over = installation.folder / "over"
    installation.database.rows(order_app.TABLES)
    installation.use(
        "tests.crash.order_app:inbox", ORDER="current", ORDER_PROVIDER=str(free_port()), ORDER_OVER=str(over)
    )
    installation.receive()
    workers = Workers(installation)
    sender, _ = installation.start_sending(
        load(), connections=CONNECTIONS, times=2, deadline=LONG, module="tests.crash.order_provider"
    )
    workers.until_done()
    while installation.database.states().total() < EVENTS:
        workers.until_done()
        time.sleep(0.1)
    workers.until_done()
    over.write_text(json.dumps(True))
    assert sender.exit_code(PATIENCE) == 0
    assert workers.kills > 0
    check(installation)
