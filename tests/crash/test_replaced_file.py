"""The SQLite file is deleted, renamed or replaced while a receiver writes: acks stop there, and health says why."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hookledger import Inbox
from tests.crash.conftest import Install
from tests.crash.processes import Installation, events, eventually

BEFORE = 40
AFTER = 40


@pytest.fixture
def installation(install: Install, sqlite_url: str) -> Iterator[Installation]:
    yield install(sqlite_url)


def path_of(installation: Installation) -> Path:
    return Path(installation.database.url.removeprefix("sqlite:///"))


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def delete(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(beside(path, ".away"))


def replace(path: Path) -> None:
    """By an inbox that is as good as the first, and empty."""
    other = beside(path, ".other")
    asyncio.run(Inbox(f"sqlite:///{other}").migrate())
    other.replace(path)


def delete_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        beside(path, suffix).unlink()


def delete_log(path: Path) -> None:
    beside(path, "-wal").unlink()


def replace_log(path: Path) -> None:
    log = beside(path, "-wal")
    shutil.copy(log, beside(log, ".copy"))
    beside(log, ".copy").replace(log)


def delete_index(path: Path) -> None:
    beside(path, "-shm").unlink()


DEEDS: list[Callable[[Path], None]] = [
    delete,
    rename,
    replace,
    delete_all,
    delete_log,
    replace_log,
    delete_index,
]


def refused(installation: Installation) -> str:
    """What health says is wrong, once nothing is acked any more."""

    def not_ready() -> str:
        status, body = installation.ask_operator("/readyz")
        problem = str(json.loads(body)["problem"]) if status == 503 else ""
        return "" if problem.startswith("workers: ") else problem  # no worker runs here: that is said until then

    return eventually(not_ready, "not ready")


@pytest.mark.parametrize(
    ("deed", "writer_process"), [*((deed, True) for deed in DEEDS), (replace, False), (delete_log, False)]
)
def test_no_ack_after_the_file_is_gone(
    installation: Installation, deed: Callable[[Path], None], writer_process: bool
) -> None:
    path = path_of(installation)
    installation.set_intake(f"writer_process = {str(writer_process).lower()}")
    receiver = installation.receive()
    installation.send(*events(BEFORE, prefix="before"))

    deed(path)
    sender, log = installation.start_sending(events(AFTER, prefix="after"))
    eventually(lambda: log.statuses()[503] > AFTER, "answers after the deed")
    assert log.statuses().keys() == {503}, "an ack that a restart would take back"
    assert "deleted, renamed or replaced" in refused(installation)

    if writer_process:  # the next writer process must not go on with whatever is at the path now
        [writer] = receiver.children()
        os.kill(writer, signal.SIGKILL)
        eventually(partial(another, receiver.children, writer), "another writer process")
        answered = len(log.answers())
        eventually(lambda: len(log.answers()) > answered + AFTER, "answers of the next writer process")
        assert log.statuses().keys() == {503}

    receiver.terminate()
    assert receiver.exit_code() == 0
    if deed is replace:  # as the message says: SQLite would write the old log into the new file
        beside(path, "-wal").unlink(missing_ok=True)
        beside(path, "-shm").unlink(missing_ok=True)
    if not path.exists():
        asyncio.run(Inbox(installation.database.url).migrate())
    installation.receive()
    assert sender.exit_code() == 0, log.statuses()
    kept = installation.database.events().keys()
    assert log.acked().keys() <= kept, "acked, and not in the file at the path"


def another(children: Callable[[], list[int]], former: int) -> bool:
    return bool(children()) and former not in children()


def test_what_only_the_lost_log_had_is_saved(installation: Installation) -> None:
    """All that was acked is in a log that is deleted, and no process lives to close it properly."""
    receiver = installation.receive()
    first = installation.send(*events(BEFORE, prefix="before"))
    delete_log(path_of(installation))
    _, log = installation.start_sending(events(1, prefix="after"), deadline=2)
    eventually(lambda: log.statuses()[503], "the loss is noticed")
    for writer in receiver.children():
        os.kill(writer, signal.SIGKILL)
    receiver.kill()
    assert first.acked().keys() <= installation.database.events().keys()


def test_it_continues_when_the_file_is_restored(installation: Installation) -> None:
    path = path_of(installation)
    receiver, worker = installation.receive(), installation.work()
    installation.send(*events(BEFORE, prefix="before"))
    installation.drain()  # a worker that finds no file at its start exits
    rename(path)
    sender, log = installation.start_sending(events(AFTER, prefix="after"))
    eventually(lambda: log.statuses()[503] > AFTER, "answers while it is away")
    assert log.statuses().keys() == {503}
    beside(path, ".away").rename(path)
    assert sender.exit_code() == 0, log.statuses()
    assert eventually(installation.ready, "ready again")
    installation.drain()
    installation.check()
    assert installation.database.states() == {"processed": BEFORE + AFTER}
    assert receiver.running
    assert worker.running
