"""A worker stopped in the middle of a handler, beyond its lease: what it does when it wakes up changes nothing."""

import os
import signal
import time
from pathlib import Path

import apsw

from tests.crash.conftest import Install
from tests.crash.processes import Installation, Process, event, events, eventually, process_state


def lock_is_free(url: str) -> bool:
    """Whether somebody could write now. PostgreSQL's writers do not keep one another waiting."""
    if not url.startswith("sqlite:///"):
        return True
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


def freeze_without_lock(worker: Process, url: str) -> None:
    """Its heartbeat takes SQLite's write lock now and then: not at such a moment."""
    worker.freeze()
    while not lock_is_free(url):
        worker.thaw()
        time.sleep(0.02)
        worker.freeze()


# proves R19
def test_what_a_frozen_worker_writes_late_is_refused(installation: Installation, tmp_path: Path) -> None:
    database = installation.database
    announced, go = tmp_path / "announced", tmp_path / "go"
    installation.receive()
    frozen = installation.work()
    installation.send(event("evt_frozen", "freeze", announce=str(announced), go=str(go)))
    eventually(announced.exists, "the handler runs")
    freeze_without_lock(frozen, database.url)

    second = installation.work()
    eventually(lambda: database.states() == {"processed": 1}, "the second worker has processed the event")
    before = (database.event("evt_frozen"), database.effects(), database.attempts())
    assert f":{second.pid}:" in before[0]["worker"]
    assert database.outcomes() == {"crashed": 1, "processed": 1}

    go.touch()
    frozen.thaw()
    eventually(lambda: "outcome discarded: claim on event" in frozen.log, "the late outcome is discarded")
    frozen.terminate()
    assert frozen.exit_code() == 0
    assert (database.event("evt_frozen"), database.effects(), database.attempts()) == before
    installation.check()


def test_a_worker_frozen_with_the_write_lock_is_killed(install: Install, sqlite_url: str, tmp_path: Path) -> None:
    installation = install(sqlite_url, transaction_limit="1500ms")
    announced = tmp_path / "announced"
    supervisor = installation.serve()
    installation.send(event("evt_frozen", "freeze.inside", announce=str(announced)))
    eventually(announced.exists, "the handler is in its transaction")
    pid = int(announced.read_text())
    assert pid in supervisor.children()
    os.kill(pid, signal.SIGSTOP)
    assert not lock_is_free(sqlite_url)

    load = events(20)
    installation.send(*load)
    assert process_state(pid) is None
    assert "killing it" in supervisor.log
    installation.drain()
    installation.check()
    assert installation.database.states() == {"processed": 21}
    assert installation.database.outcomes("evt_frozen") == {"crashed": 1, "processed": 1}


def test_a_worker_is_not_blamed_for_the_lock_of_the_one_before(
    install: Install, sqlite_url: str, tmp_path: Path
) -> None:
    installation = install(sqlite_url, lease="60s", transaction_limit="500ms")
    announced = tmp_path / "announced"
    supervisor = installation.serve()
    installation.send(event("evt_killed", "freeze.inside", announce=str(announced)))
    eventually(announced.exists, "the handler is in its transaction")
    os.kill(int(announced.read_text()), signal.SIGKILL)
    eventually(lambda: "work ended with -9" in supervisor.log, "the supervisor knows")
    eventually(lambda: len(supervisor.children()) == 2, "another worker was started")
    children = supervisor.children()
    time.sleep(5)  # the supervisor's patience with the lock is 3.5 s
    assert supervisor.children() == children
    assert "killing it" not in supervisor.log
