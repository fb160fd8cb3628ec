"""The receiver's end of the socket to its answering process: whatever that does, each delivery gets an end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hookledger.errors import Unavailable
from hookledger.ids import new_id
from hookledger.inline.client import MAX_HELD, AnswerClient
from hookledger.inline.settings import AnswerSettings
from hookledger.model import Arrival, Proof
from hookledger.receive.answering import Reply
from hookledger.receive.http import MAX_CONNECTIONS
from hookledger.receive.request import Limits

ARRIVAL = Arrival(new_id(), "stripe", b"", b"", b"{}", None, Proof("hmac", ""), (), ())

SILENT = """
import socket, sys
line = socket.socket(fileno=int(sys.argv[1]))
while line.recv(1 << 20):
    pass
"""
"""A process that reads everything and says nothing."""

LEAVES_A_CHILD = """
import os, socket, sys
line = socket.socket(fileno=int(sys.argv[1]))
line.recv(1)
if os.fork() == 0:
    open(sys.argv[2], "w").write(str(os.getpid()))
    os.read(0, 1)  # until the test ends
    os._exit(0)
os.kill(os.getpid(), 9)
"""
"""A process whose handler has forked another one, which has the socket, too; then it is killed."""


@pytest.fixture
async def orphan(tmp_path: Path) -> AsyncIterator[Path]:
    """Where the child of a process that has ended says who it is; it ends with the test."""
    place = tmp_path / "orphan"
    yield place
    if place.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(place.read_text()), signal.SIGKILL)


async def test_a_process_that_ended_is_noticed_while_a_child_of_it_has_the_socket(orphan: Path) -> None:
    starts: list[subprocess.Popen[bytes]] = []
    again = asyncio.Event()
    loop = asyncio.get_running_loop()

    def start(descriptor: int) -> subprocess.Popen[bytes]:
        if starts:
            loop.call_soon_threadsafe(again.set)
            raise OSError("one is enough")
        command = [sys.executable, "-c", LEAVES_A_CHILD, str(descriptor), str(orphan)]
        starts.append(subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.PIPE))
        return starts[0]

    client = AnswerClient(start, queue=10, patience=60.0, leave=0.0)
    answered: asyncio.Future[Reply | Exception] = loop.create_future()
    client.ask(ARRIVAL, 60.0, lambda recorded: None, answered.set_result)
    assert isinstance(await asyncio.wait_for(answered, 20), Unavailable)
    await asyncio.wait_for(again.wait(), 20)  # it is started again
    await client.close()


async def test_deliveries_that_wait_leave_room_for_others() -> None:
    """Their bodies count in the receiver's budget until they are answered, also those that the process has read."""

    def start(descriptor: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SILENT, str(descriptor)], pass_fds=[descriptor])

    client = AnswerClient(start, queue=1000, patience=60.0, leave=0.0)
    large, taken = replace(ARRIVAL, body=bytes(1024 * 1024)), 0
    ended: list[Reply | Exception] = []
    with pytest.raises(Unavailable, match="full"):
        for _ in range(100):
            client.ask(large, 60.0, lambda recorded: None, ended.append)
            taken += 1
            await asyncio.sleep(0.01)
    assert MAX_HELD // len(large.body) - 1 <= taken <= Limits().body_bytes // 2 // len(large.body) // 2
    await client.close()
    assert len(ended) == taken
    assert AnswerSettings().queue <= MAX_CONNECTIONS // 2


async def test_it_is_started_again_however_often_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every half minute, while the database is down over a weekend."""
    monkeypatch.setattr("hookledger.inline.client.MAX_DELAY", 0.0)
    starts, enough = 0, asyncio.Event()
    loop = asyncio.get_running_loop()

    def start(descriptor: int) -> subprocess.Popen[bytes]:
        nonlocal starts
        starts += 1
        if starts > 1100:
            loop.call_soon_threadsafe(enough.set)
        raise OSError("no more processes")

    client = AnswerClient(start, queue=10, patience=60.0, leave=0.0)
    client.open()
    await asyncio.wait_for(enough.wait(), 60)
    await client.close()
