"""The operator's listener under attack, as a real process: half-sent requests and idle connections of one address
stop neither its health checks nor the calls of another address, and all of them are released."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from hookledger import Inbox
from tests.operators import TOKENS
from tests.services.forked import Forked
from tests.services.ports import free_port

ATTACKER, OTHER = "127.0.0.1", "127.0.0.2"
HALF_HEAD = b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nX-Slow: "
VIEWER = f"Host: x\r\nAuthorization: Bearer {TOKENS['viewer']}\r\nContent-Type: application/json\r\n".encode()
COMPARE = "/api/v1/sources/stripe/keys/compare"
POST = f"POST {COMPARE} HTTP/1.1\r\n".encode() + VIEWER
HALF_BODY = POST + b'Content-Length: 500000\r\n\r\n{"keys": ['
HALF_CHUNK = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"
IDLE = b""
KEPT_ALIVE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE = 60.0


class Process:
    """`hookledger api` on an empty inbox."""

    def __init__(self, folder: Path, database: str, extra: str = "") -> None:
        self.port = free_port()
        tokens = ", ".join(
            f'{{ name = "{role}-ada", role = "{role}", token = "{token}" }}' for role, token in TOKENS.items()
        )
        text = f'database = "{database}"\n[operator]\nport = {self.port}\ntokens = [{tokens}]\n{extra}'
        text += '[sources.stripe]\nprovider = "stripe"\nsecrets = ["whsec_made_up_for_the_operators"]\n'
        (folder / "hookledger.toml").write_text(text)
        self.forked = Forked("hookledger", ["api"], cwd=folder, env=dict(os.environ), stderr=folder / "api.log")
        self.log = folder / "api.log"
        self.eventually(lambda: self.ask("/healthz")[0] == 200, "it listens")

    def ask(self, path: str, *, source: str = ATTACKER, body: bytes | None = None) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE, source_address=(source, 0))
        try:
            headers = {"Authorization": f"Bearer {TOKENS['viewer']}", "Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def connect(self, sent: bytes, source: str = ATTACKER) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), PATIENCE, (source, 0))
        made.sendall(sent)
        return made

    def waiting_are(self, connections: list[socket.socket]) -> bool:
        """Whether it has hung up on none of these."""
        self.ask("/healthz")  # so that all that came before it has been looked at
        return not select.select(connections, [], [], 0)[0]

    def sockets(self) -> int:
        found = 0
        for link in Path(f"/proc/{self.forked.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found += str(link.readlink()).startswith("socket:")
        return found

    def eventually(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline or self.forked.poll() is not None:
                raise AssertionError(f"it never came to be that {what}: {self.log.read_text()}")
            time.sleep(0.05)


@contextlib.contextmanager
def running(folder: Path, more: str = "") -> Iterator[Process]:
    database = f"sqlite:///{folder}/inbox.db"
    asyncio.run(Inbox(database).migrate())
    made = Process(folder, database, more)
    try:
        yield made
    finally:
        made.forked.terminate()
        assert made.forked.wait() == 0, made.log.read_text()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("counts sockets in /proc, and needs all of 127.0.0.0/8")
    with running(tmp_path) as made:
        yield made


def ended(connection: socket.socket) -> bytes:
    """What the other side says until it hangs up."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            said += part
    return said


def answers_others(process: Process) -> None:
    for _ in range(3):
        for source in (ATTACKER, OTHER):
            assert process.ask("/readyz", source=source)[0] == 200
            assert process.ask("/healthz", source=source)[0] == 200
        assert process.ask("/api/v1/events", source=OTHER)[0] == 200
        assert process.ask(COMPARE, source=OTHER, body=b'{"keys": [["evt_1"]]}')[0] == 200


@pytest.mark.parametrize(
    ("sent", "count"),
    [(HALF_HEAD, 130), (HALF_HEAD, 500), (HALF_BODY, 130), (HALF_CHUNK, 130), (IDLE, 130), (KEPT_ALIVE, 130)],
    ids=["heads", "500 heads", "bodies", "chunks", "idle", "kept alive"],
)
def test_half_sent_requests_stop_no_other(process: Process, sent: bytes, count: int) -> None:
    assert process.ask("/api/v1/events", source=OTHER)[0] == 200  # opens its store
    before = process.sockets()
    attackers = [process.connect(sent) for _ in range(count)]
    answers_others(process)
    for connection in attackers:
        connection.close()
    process.eventually(lambda: process.sockets() <= before, "all connections are released")
    assert process.ask("/api/v1/events")[0] == 200


def test_who_never_ends_is_hung_up_on(process: Process) -> None:
    assert process.ask("/api/v1/events", source=OTHER)[0] == 200
    before = process.sockets()
    attackers = {sent: [process.connect(sent) for _ in range(6)] for sent in (HALF_HEAD, HALF_BODY, HALF_CHUNK, IDLE)}
    answers_others(process)
    said = {sent: {ended(connection)[:12] for connection in group} for sent, group in attackers.items()}
    slow = {b"HTTP/1.1 408"}
    assert said == {HALF_HEAD: slow, HALF_BODY: slow, HALF_CHUNK: slow, IDLE: {b""}}
    process.eventually(lambda: process.sockets() <= before, "all connections are released")
    answers_others(process)


def test_behind_a_proxy_clients_are_told_apart(tmp_path: Path) -> None:
    """The proxy's connections are many clients': they are not limited as one, and a flood in them stops nobody."""
    proxies = '[intake]\ntrusted_proxies = ["127.0.0.1"]\nforwarded_header = "x-forwarded-for"\n'
    with running(tmp_path, proxies) as process:
        attackers = [process.connect(HALF_BODY) for _ in range(40)]
        assert process.waiting_are(attackers)
        attackers += [process.connect(HALF_HEAD) for _ in range(300)]
        answers_others(process)
        for connection in attackers:
            connection.close()
