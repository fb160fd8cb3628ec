"""The monitor of a process, from another thread's view."""

import asyncio
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from hookledger import Inbox
from hookledger.cli import monitor as monitor_module
from hookledger.cli.monitor import Address, Monitor, address, listen
from hookledger.clock import Seconds
from hookledger.config import Config, MonitorSettings
from hookledger.errors import ConfigError, Unavailable
from hookledger.receive.respond import Response
from tests.services.ports import free_port


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:9000", Address("127.0.0.1", 9000)),
        ("localhost:1", Address("localhost", 1)),
        ("[::1]:9000", Address("::1", 9000)),
        ("unix:/run/a b.socket", Address(path="/run/a b.socket")),
        ("unix:///run/a.socket", Address(path="/run/a.socket")),
    ],
)
def test_addresses(text: str, meant: Address) -> None:
    assert address(text) == meant


@pytest.mark.parametrize(
    "text", ["", "9000", ":9000", "localhost", "::1:9000", "a:70000", "http://a:1", "unix:", f"unix:/{'x' * 120}"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="--monitor"):
        address(text)


def test_the_socket_of_a_killed_process_is_replaced_and_that_of_a_live_one_is_not(tmp_path: Path) -> None:
    with TemporaryDirectory() as folder:  # the path of tmp_path may be too long for a socket
        where = Address(path=f"{folder}/work.socket")
        program = (
            "import os, signal; from hookledger.cli.monitor import Address, listen; "
            f"kept = listen(Address(path={where.path!r})); os.kill(os.getpid(), signal.SIGKILL)"
        )
        subprocess.run([sys.executable, "-c", program], check=False)
        assert Path(where.path).is_socket()
        with listen(where) as first:
            inode = os.stat(where.path).st_ino
            with pytest.raises(ConfigError, match="another process does"):
                listen(where)
            assert os.stat(where.path).st_ino == inode, "the first still listens there"
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(where.path)
            assert first.accept()
        file = tmp_path / "precious"
        file.write_text("kept")
        if len(os.fsencode(str(file))) <= 100:
            with pytest.raises(ConfigError, match="a file of that name"):
                listen(Address(path=str(file)))
            assert file.read_text() == "kept"


def test_a_port_in_use_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(ConfigError, match="the monitor cannot listen"),
            Monitor("work", Inbox(), f"127.0.0.1:{port}"),
        ):
            pass


def asked(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def inbox(blocked_after: str = "1s") -> Inbox:
    return Inbox(settings=Config(monitor=MonitorSettings(blocked_after=Seconds(blocked_after))))


async def test_only_three_paths_and_only_reading() -> None:
    port = free_port()
    with Monitor("work", inbox(), f"127.0.0.1:{port}") as monitor:
        assert (await asyncio.to_thread(asked, port, "/readyz"))[0] == 503, "it starts"
        assert (await asyncio.to_thread(asked, port, "/healthz"))[0] == 200

        async def ready() -> Response:
            return Response(200, b"{}")

        monitor.watch(ready)
        for path, status in {
            "/healthz": 200,
            "/readyz": 200,
            "/metrics": 200,
            "/": 404,
            "/api/v1/events": 404,
        }.items():
            assert (await asyncio.to_thread(asked, port, path))[0] == status, path
        assert (await asyncio.to_thread(asked, port, "/metrics", "POST"))[0] == 405
        monitor.problem = lambda: "the heartbeat has ended"
        status, body = await asyncio.to_thread(asked, port, "/healthz")
        assert (status, b"heartbeat" in body) == (503, True)


async def test_not_ready_is_an_answer_too() -> None:
    port = free_port()
    with Monitor("work", inbox(), f"127.0.0.1:{port}") as monitor:

        async def ready() -> Response:
            raise Unavailable("the database is down")

        monitor.watch(ready)
        status, body = await asyncio.to_thread(asked, port, "/readyz")
        assert (status, b"the database is down" in body) == (503, True)


async def test_a_blocked_loop_is_an_answer() -> None:
    port = free_port()
    with Monitor("work", inbox(), f"127.0.0.1:{port}") as monitor:

        async def ready() -> Response:
            return Response(200, b"{}")

        monitor.watch(ready)
        told: list[tuple[int, bytes]] = []

        def until_blocked() -> None:
            while not told or told[-1][0] != 503:
                told.append(asked(port, "/healthz"))
                time.sleep(0.05)
            told.append(asked(port, "/metrics"))

        asking = threading.Thread(target=until_blocked)
        asking.start()
        await asyncio.sleep(0.1)
        asking.join()  # the loop is blocked
        assert b"the event loop has not run" in told[-2][1]
        assert told[-1][0] == 200, "metrics are there even so"
        for _ in range(500):
            if (await asyncio.to_thread(asked, port, "/healthz"))[0] == 200:
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail("it runs again, and nothing says so")


async def test_slow_clients_do_not_keep_others_out() -> None:
    port = free_port()
    with Monitor("work", inbox(), f"127.0.0.1:{port}"):
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        try:
            for one in slow:
                one.sendall(b"GET /healthz HT")
            assert (await asyncio.to_thread(asked, port, "/healthz"))[0] == 200
        finally:
            for one in slow:
                one.close()


async def test_a_blocked_operators_loop_leaves_out_the_database_within_a_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prometheus waits ten seconds; and what runs on the other loop is not closed from here."""
    assert monitor_module.SCRAPE < 10
    monkeypatch.setattr(monitor_module, "SCRAPE", 0.1)
    port, go = free_port(), threading.Event()

    class Blocked:
        metrics: object = None

        async def database_metrics(self) -> str:
            go.wait(30)
            return "# HELP hookledger_database_up x\nhookledger_database_up 1\n"

    async def scraped() -> tuple[int, bytes]:
        return await asyncio.to_thread(asked, port, "/metrics")

    started = threading.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: (loop.call_soon(started.set), loop.run_forever()), daemon=True)
    thread.start()
    await asyncio.to_thread(started.wait, 30)
    with Monitor("api", inbox(), f"127.0.0.1:{port}") as monitor:
        monitor._operator = cast(Any, (Blocked(), loop))
        try:
            status, body = await scraped()
            assert (status, b"hookledger_up" in body, b"database_up" in body) == (200, True, False)
        finally:
            go.set()
        for _ in range(500):
            if b"hookledger_database_up 1" in (await scraped())[1]:
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail("the loop runs again, and nothing says so")
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()
