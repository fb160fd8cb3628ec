"""Duplicates, many at the same moment, and while the work fails."""

from pathlib import Path

from tests.crash.conftest import Install
from tests.crash.processes import Installation, event, events, eventually


# proves R58
def test_the_same_events_over_many_connections(installation: Installation) -> None:
    installation.receive()
    installation.work()
    log = installation.send(*events(200, "order", "plain"), connections=64, times=20)
    assert log.statuses() == {202: 200, 200: 3800}
    installation.drain()
    installation.check()
    assert installation.database.states() == {"processed": 200}
    [deliveries] = installation.database.rows("SELECT count(*) AS n FROM {h}deliveries")
    assert deliveries["n"] == 4000


# proves R62
def test_a_duplicate_while_the_work_fails(install: Install, database_url: str, tmp_path: Path) -> None:
    installation = install(database_url, retry={"attempts": 10_000, "initial_delay": "50ms", "max_delay": "500ms"})
    database, go = installation.database, tmp_path / "go"
    installation.receive()
    installation.work()
    failing = event("evt_failing", "fail.until.go", go=str(go))
    assert installation.send(failing).statuses() == {202: 1}
    eventually(lambda: database.outcomes()["retrying"] >= 2, "the work has failed, and again")
    assert installation.send(failing).statuses() == {200: 1}
    failed = database.outcomes()["retrying"]
    eventually(lambda: database.outcomes()["retrying"] > failed, "the internal retry goes on")
    assert database.effects() == []
    go.touch()
    installation.drain()
    installation.check()
    assert database.states() == {"processed": 1}
