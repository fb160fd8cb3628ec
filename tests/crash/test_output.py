"""`serve` whose output cannot be written: what is logged is lost, and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.crash.conftest import Install
from tests.crash.processes import PATIENCE, ROOT, Installation, children_of, events, eventually, process_state
from tests.soak import ANY


@contextlib.contextmanager
def full_disk() -> Iterator[int]:
    output = os.open("/dev/full", os.O_WRONLY)
    yield output
    os.close(output)


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@contextlib.contextmanager
def unread_pipe() -> Iterator[int]:
    """Full, and its reader lives and does not read."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"." * 4096)
    os.set_blocking(write, True)
    yield write
    os.close(write)
    os.close(read)


@contextlib.contextmanager
def serving(installation: Installation, output: int) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor that says everything there."""
    command = [sys.executable, "-m", "hookledger", "serve", "--log-level", "debug"]
    supervisor = subprocess.Popen(
        command,
        cwd=ROOT,
        env=installation.environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        yield supervisor
    finally:
        children = children_of(supervisor.pid) if supervisor.poll() is None else []
        supervisor.kill()
        supervisor.wait(PATIENCE)
        eventually(lambda: all(process_state(pid) is None for pid in children), "the children have ended")


def command_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[words.index("hookledger") + 1] if "hookledger" in words else ""


Output = Callable[[], AbstractContextManager[int]]
OUTPUTS: dict[str, tuple[Output, ...]] = {"sqlite": (full_disk, unread_pipe), "postgres": (closed_pipe,)}
"""In scripts/test each once and each store once; scripts/soak runs each on each."""
CASES = [
    pytest.param(store, output, id=f"{store}-{output.__name__}")
    for output in (full_disk, closed_pipe, unread_pipe)
    for store in OUTPUTS
    if ANY or output in OUTPUTS[store]
]


@pytest.mark.parametrize(("store", "unwritable"), CASES)
def test_serve_outlives_its_output(
    request: pytest.FixtureRequest,
    install: Install,
    store: str,
    unwritable: Output,
) -> None:
    installation = install(request.getfixturevalue(f"{store}_url"))
    installation.give_token()
    with unwritable() as output, serving(installation, output) as supervisor:
        eventually(lambda: installation.ready() or supervisor.poll() is not None, "ready, or ended")
        assert supervisor.poll() is None, "it ended with its output"
        installation.send(*events(60, prefix="first"))
        started = {command_of(pid): pid for pid in children_of(supervisor.pid)}
        assert started.keys() == {"receive", "work", "api"}
        for name in ("work", "api"):  # the supervisor has something to say about each
            os.kill(started[name], signal.SIGKILL)
        loud = [{**event, "type": "loud"} for event in events(60, prefix="second")]
        installation.send(*loud)
        installation.drain()
        installation.check()
        assert installation.database.states() == {"processed": 120}
        assert eventually(installation.ready, "the API is there again")
        assert started["receive"] in children_of(supervisor.pid), "the receiver was not disturbed"
        supervisor.terminate()
        assert supervisor.wait(PATIENCE) == 0
