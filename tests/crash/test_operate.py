"""The operator's process: whatever becomes of it, no delivery notices; it comes back, and it goes with the others."""

import json
import os
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from hookledger.cli import exits
from tests.crash.conftest import Install
from tests.crash.processes import Installation, Process, event, events, eventually, process_state


@pytest.fixture
def operated(install: Install, sqlite_url: str) -> Installation:
    """The API is on."""
    installation = install(sqlite_url)
    installation.give_token()
    return installation


def child(supervisor: Process, name: str) -> int | None:
    """Its process, if it runs."""
    for pid in supervisor.children():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if command[1:4] == [b"-m", b"hookledger", name.encode()] and process_state(pid):
            return pid
    return None


def serve(installation: Installation) -> Process:
    """All of them, ready."""
    supervisor = installation.serve()
    eventually(installation.ready, "the receiver is ready, and the operator's process says so")
    return supervisor


def test_it_is_killed_under_load(install: Install, database_url: str) -> None:
    installation = install(database_url)
    installation.give_token()
    supervisor = serve(installation)
    receiver, first = child(supervisor, "receive"), child(supervisor, "api")
    assert receiver is not None and first is not None
    sender, log = installation.start_sending(events(600), connections=4, pause=0.01)
    eventually(lambda: log.acked_more_than(50), "acks")
    assert installation.ask_operator("/api/v1/events?limit=500")[0] == 200
    os.kill(first, signal.SIGKILL)
    eventually(lambda: installation.ask_operator("/api/v1/summary")[0] == 200, "another one answers")
    assert sender.exit_code() == 0
    assert log.statuses() == {202: 600}, "none was refused, none had to be sent again"
    assert (child(supervisor, "receive"), child(supervisor, "api") != first) == (receiver, True)
    assert f"api ended with {-signal.SIGKILL}" in supervisor.log

    children = supervisor.children()
    assert len(children) == 3
    supervisor.terminate()
    assert supervisor.exit_code() == exits.OK
    assert [process_state(pid) for pid in children] == [None] * 3
    installation.work("--drain")
    installation.drain()
    installation.check()


def test_it_speaks_for_the_receiver_and_ends_with_the_supervisor(operated: Installation) -> None:
    supervisor = serve(operated)
    refused = json.loads(operated.ask_operator("/readyz")[1])["rejected"]
    with socket.create_connection(("127.0.0.1", operated.port)) as sender:
        sender.sendall(b"GET /nobody HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"404" in sender.recv(1000)
    answer = json.loads(operated.ask_operator("/readyz")[1])
    assert sum(answer["rejected"].values()) == sum(refused.values()) + 1, "what only the receiver knows"

    receiver, children = child(supervisor, "receive"), supervisor.children()
    assert receiver is not None and len(children) == 3
    supervisor.freeze()  # so that it starts no other
    os.kill(receiver, signal.SIGKILL)
    eventually(lambda: process_state(receiver) is None, "the receiver is gone")
    for path in ("/healthz", "/readyz"):
        status, body = operated.ask_operator(path)
        assert (status, json.loads(body)["problem"]) == (503, "the receiver does not answer")
    assert operated.ask_operator("/api/v1/summary")[0] == 200, "operators go on"
    supervisor.kill()
    eventually(lambda: all(process_state(pid) is None for pid in children), "the children have ended")


def taken(port: int) -> list[socket.socket]:
    """A listener there; none while somebody else has one."""
    try:
        return [socket.create_server(("127.0.0.1", port))]
    except OSError:
        return []


def test_a_port_that_is_taken(operated: Installation) -> None:
    with socket.create_server(("127.0.0.1", operated.operator_port)):
        refused = operated._start("refused", "hookledger", "serve")
        assert refused.exit_code() == exits.CONFIG, "it is said at the start"
    assert f"cannot listen on 127.0.0.1:{operated.operator_port}" in refused.log

    supervisor = serve(operated)
    first = child(supervisor, "api")
    assert first is not None
    supervisor.freeze()
    os.kill(first, signal.SIGKILL)
    # Its threads may end a moment after it, and its port with the last of them.
    [server] = eventually(partial(taken, operated.operator_port), "its port is free")
    with server:
        supervisor.thaw()
        eventually(lambda: f"api ended with {exits.CONFIG}" in supervisor.log, "its port is taken")
        operated.send(event("evt_1"))
    eventually(lambda: operated.ask_operator("/api/v1/summary")[0] == 200, "it is back")
    operated.drain()
    operated.check()
