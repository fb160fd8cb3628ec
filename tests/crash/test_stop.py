"""Stopping on request: what runs is finished, what was not started is given back, nobody is left behind."""

from pathlib import Path

from tests.crash.conftest import Install
from tests.crash.processes import Installation, event, eventually, process_state


def test_a_worker_releases_unstarted_claims(install: Install, database_url: str, tmp_path: Path) -> None:
    installation = install(database_url, concurrency=2)
    database, go = installation.database, tmp_path / "go"
    installation.receive()
    installation.send(
        *(event(f"evt_{n}", "freeze", announce=str(tmp_path / f"announced_{n}"), go=str(go)) for n in range(8))
    )
    worker = installation.work()
    eventually(lambda: database.states() == {"processing": 8}, "two run, six were claimed ahead")
    eventually(lambda: len(list(tmp_path.glob("announced_?"))) == 2, "two run")
    worker.terminate()
    eventually(lambda: database.states() == {"processing": 2, "pending": 6}, "six were given back")
    assert worker.running
    go.touch()
    assert worker.exit_code() == 0
    assert "claim lost" not in worker.log
    [left] = database.rows("SELECT stopped_at FROM {h}workers")
    assert left["stopped_at"] is not None, "nobody takes it for a living one until its lease ends"
    rows = database.events().values()
    assert sorted((row["state"], row["attempts"], row["crashes"]) for row in rows) == [
        *[("pending", 0, 0)] * 6,
        *[("processed", 1, 0)] * 2,
    ]
    assert database.outcomes() == {"processed": 2}

    installation.work()
    installation.drain()
    installation.check()
    assert database.outcomes() == {"processed": 8}


def test_serve_ends_with_all_its_children(installation: Installation, tmp_path: Path) -> None:
    announced, go = tmp_path / "announced", tmp_path / "go"
    supervisor = installation.serve()
    installation.send(event("evt_running", "freeze", announce=str(announced), go=str(go)))
    eventually(announced.exists, "a handler runs")
    children = supervisor.children()
    assert len(children) == 2
    supervisor.terminate()
    eventually(lambda: len(supervisor.children()) < 2, "the receiver has ended")
    assert supervisor.running
    go.touch()
    assert supervisor.exit_code() == 0
    assert [process_state(pid) for pid in children] == [None, None]
    installation.check()
    assert installation.database.outcomes() == {"processed": 1}


def test_a_killed_supervisor_takes_its_children_with_it(installation: Installation) -> None:
    supervisor = installation.serve()
    children = supervisor.children()
    assert len(children) == 2
    installation.send(event("evt_1", "order"))
    supervisor.kill()
    eventually(lambda: all(process_state(pid) is None for pid in children), "the children have ended")
    installation.work("--drain")
    installation.drain()
    installation.check()
