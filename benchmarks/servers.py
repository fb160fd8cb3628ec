"""The processes a measurement needs: web servers, PostgreSQL, Valkey. Each ends with its `with` block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.ports import free_port
from tests.services.postgres import Databases, Postgres
from tests.services.valkey import APPEND_ONLY, Valkey

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0

GRANIAN = ("--workers", "1", "--loop", "uvloop", "--http", "1", "--no-ws")
"""The settings of every target: one worker process, HTTP/1, uvloop."""


class ServerError(Exception):
    """A process did not start, or did not stay; the end of what it said is in the message."""


@dataclass(frozen=True)
class Server:
    """One process that answers HTTP on a port of 127.0.0.1."""

    command: Sequence[str]
    port: int
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: Sequence[Sequence[str]] = ()
    """Commands to run to their end first, in the same environment: migrations."""
    path: str = "/webhooks/stripe"

    @contextmanager
    def running(self) -> Iterator[int]:
        """Start it, wait until it answers, give its pid, and stop it at the end."""
        for command in self.prepare:
            subprocess.run(command, cwd=ROOT, env=self._environment(), check=True, stdout=subprocess.DEVNULL)
        with _process(self.command, self._environment()) as (process, log):
            _await(process, log, self._answers)
            yield process.pid

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        return {**os.environ, **self.env, "PYTHONPATH": path}

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(5) == b"HTTP/"


def granian(app: str, env: Mapping[str, str] | None = None) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", "asgi", *GRANIAN]
    command += ["--no-log", "--port", str(port), app]
    return Server(command, port, env or {})


def uvicorn(app: str, env: Mapping[str, str] | None = None) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--loop", "uvloop", "--http", "httptools", "--ws", "none"]
    command += ["--no-access-log", "--lifespan", "auto", "--log-level", "warning"]
    return Server([*command, "--port", str(port), app], port, env or {})


@contextmanager
def valkey() -> Iterator[tuple[str, int]]:
    """A real Valkey server, its append-only file synced every second. Gives its URL and its pid."""
    with Valkey(*APPEND_ONLY) as server:
        assert server.pid is not None
        yield server.url, server.pid


class Postgresql:
    """The PostgreSQL of a measurement: DATABASE_URL's, or one started here. Refused unless it is durable."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            value = databases.fetchval(f"SHOW {setting}")
            if value != "on":
                raise ServerError(f"{setting} is {value}: these figures would not be about durable rows")
        self.version = str(databases.fetchval("SHOW server_version"))
        self.pid = databases.pid if isinstance(databases, Postgres) else None

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh, empty database after a checkpoint, so that every run starts from the same place."""
        name = f"bench_{uuid.uuid4().hex}"
        url = self._databases.create_database(name)
        self._databases.execute("CHECKPOINT")
        try:
            yield url
        finally:
            self._databases.drop_database(name)


@contextmanager
def postgresql() -> Iterator[Postgresql]:
    given = os.environ.get("DATABASE_URL")
    if given:
        yield Postgresql(Databases(given))
        return
    with Postgres() as server:
        yield Postgresql(server)


@contextmanager
def _process(command: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.TemporaryDirectory(prefix="hookledger-bench-") as directory:
        log = Path(directory) / "log"
        with log.open("wb") as output:
            # A session of its own: what it spawns can be ended with it, and nothing else is.
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield process, log
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(process: subprocess.Popen[bytes], log: Path, answers: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if answers():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise ServerError(f"{process.args!r} does not answer:\n{log.read_text(errors='replace')[-2000:]}")
