"""Handlers that misbehave without killing anything."""

import time
from pathlib import Path

from tests.crash.conftest import Install
from tests.crash.processes import Installation, event, events, eventually


def test_acks_continue_while_handlers_block(installation: Installation, tmp_path: Path) -> None:
    database, go = installation.database, tmp_path / "go"
    hogs = [event(f"evt_hog_{n}", "hog", announce=str(tmp_path / f"announced_{n}"), go=str(go)) for n in range(2)]
    installation.receive()
    first = installation.work()
    installation.send(hogs[0])
    eventually((tmp_path / "announced_0").exists, "the first worker's event loop is busy")
    second = installation.work()
    installation.send(hogs[1])
    eventually((tmp_path / "announced_1").exists, "the second worker's too")

    third = installation.work()  # its upkeep looks for expired leases all the while
    log = installation.send(*events(300), connections=32)
    assert log.statuses() == {202: 300}
    time.sleep(3)  # three leases
    assert [database.event(hog["id"])["state"] for hog in hogs] == ["processing", "processing"]
    go.touch()
    installation.drain()
    installation.check()
    assert database.outcomes() == {"processed": 302}
    assert first.running
    assert second.running
    assert third.running


def test_failures_end_where_they_belong(installation: Installation) -> None:
    database = installation.database
    installation.receive()
    installation.work()
    installation.send(
        event("evt_permanent", "fail.permanent"),
        event("evt_transient", "fail.transient", failures=2),
        event("evt_committed", "commit.by.itself"),
    )
    installation.drain()
    states = {key: row["state"] for key, row in database.events().items()}
    assert states == {"evt_permanent": "failed", "evt_transient": "processed", "evt_committed": "needs_review"}
    assert database.outcomes("evt_permanent") == {"failed": 1}
    assert database.outcomes("evt_transient") == {"retrying": 2, "processed": 1}
    assert database.outcomes("evt_committed") == {"needs_review": 1}
    # What a handler committed by itself stays; what failed was rolled back.
    written = [(row["event_key"], row["attempt"]) for row in database.effects()]
    assert written == [("evt_committed", 1), ("evt_transient", 3)]


def test_a_transaction_over_its_limit_leaves_nothing(install: Install, sqlite_url: str) -> None:
    installation = install(sqlite_url, transaction_limit="200ms")
    database = installation.database
    installation.receive()
    installation.work()
    installation.send(event("evt_blocking", "block", seconds=1))
    installation.drain()
    installation.check()
    assert database.states() == {"processed": 1}
    assert database.outcomes() == {"retrying": 1, "processed": 1}
