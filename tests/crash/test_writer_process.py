"""The process that writes for a receiver on SQLite: killed under load, and told to stop with all the others."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from tests.crash.conftest import Install
from tests.crash.processes import Installation, Process, events, eventually, process_state


@pytest.fixture
def installation(install: Install, sqlite_url: str) -> Iterator[Installation]:
    yield install(sqlite_url)


def test_the_writer_process_is_killed_under_load(installation: Installation) -> None:
    installation.work()
    receiver = installation.receive()
    load = events(900)
    sender, log = installation.start_sending(load, connections=16, pause=0.01)
    for number in range(3):
        eventually(partial(log.acked_more_than, 200 * number + 100), "acks")
        [scribe] = eventually(receiver.children, "a scribe")
        os.kill(scribe, signal.SIGKILL)
        eventually(partial(_gone, scribe, receiver), "it is gone")
    assert sender.exit_code() == 0, log.statuses()
    assert log.statuses().keys() <= {200, 202, 503}
    assert receiver.running
    installation.drain()
    installation.check()
    assert installation.database.states() == {"processed": len(load)}


def _gone(scribe: int, receiver: Process) -> bool:
    return scribe not in receiver.children()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_its_receiver(installation: Installation, number: int) -> None:
    """A Ctrl-C goes to both at once: what is being written then is still acked, or never was taken."""
    receiver = installation.receive()
    load = events(300)
    sender, log = installation.start_sending(load, connections=16, pause=0.01)
    eventually(partial(log.acked_more_than, 50), "acks")
    [scribe] = receiver.children()
    if number == signal.SIGKILL:
        receiver.kill()
    else:
        os.killpg(receiver.pid, number)
        assert receiver.exit_code() == 0
    eventually(lambda: process_state(scribe) is None, "the scribe has ended")
    assert "Traceback" not in receiver.log
    installation.receive()
    assert sender.exit_code() == 0, log.statuses()
    installation.work("--drain")
    installation.drain()
    installation.check()
    assert installation.database.states() == {"processed": len(load)}
