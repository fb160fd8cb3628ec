"""A mail, a finance, a task and a workspace service on this machine, which count what they get and fail when told to.

    python remotes.py

They behave like real services: finance deduplicates, mail can
be searched, workspaces have a state, tasks just happens. To try them:

    curl 127.0.0.1:8801/requests                   what it was asked for
    curl 127.0.0.1:8801/faults -d 'after timeout'  what its next request meets

A fault is `before` or `after`, as the request is done or not, and `500`, `reset` or `timeout`.
"""

import json
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Request(NamedTuple):
    """One request that was to change something."""

    about: str
    """Whose, in the words of the business."""
    key: str
    """Which operation of the caller's, by the caller's word."""
    done: bool
    """Whether it changed anything."""
    fault: str


class Remote(ThreadingHTTPServer, ABC):
    """One service. `during` is told of each request that is done, before it is answered."""

    name: ClassVar[str]
    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.requests: list[Request] = []
        self.faults: deque[str] = deque()
        self.faults_about: dict[str, deque[str]] = {}
        self.during: Callable[[Request], None] = lambda request: None
        self.guard = threading.Lock()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fault(self, about: str) -> str:
        """Return the fault for this request: its own, or the next for any request."""
        waiting = self.faults_about.get(about) or self.faults
        return waiting.popleft() if waiting else ""

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), name=self.name, daemon=True).start()

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that is gone before it is answered is no news."""

    # ── what each service does in its own way ──

    @abstractmethod
    def read(self, path: str, query: dict[str, list[str]]) -> Any: ...

    @abstractmethod
    def about(self, path: str, body: dict[str, Any]) -> str: ...

    @abstractmethod
    def write(self, path: str, key: str, body: dict[str, Any]) -> tuple[Any, bool]:
        """The answer, and whether anything was changed."""


class Mail(Remote):
    """Sends whatever it gets, as often as it gets it. What was sent can be searched by the sender's reference."""

    name = "MAIL"

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.sent: list[dict[str, Any]] = []

    def read(self, path: str, query: dict[str, list[str]]) -> Any:
        return [message for message in self.sent if message["reference"] in query.get("reference", [])]

    def about(self, path: str, body: dict[str, Any]) -> str:
        return str(body["subject"].removeprefix("Receipt for "))

    def write(self, path: str, key: str, body: dict[str, Any]) -> tuple[Any, bool]:
        self.sent.append(body)
        return {"queued": True}, True


class Finance(Remote):
    """Consistency each key once, and gives the same answer ever after."""

    name = "FINANCE"

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.entries: dict[str, dict[str, Any]] = {}

    def read(self, path: str, query: dict[str, list[str]]) -> Any:
        return list(self.entries.values())

    def about(self, path: str, body: dict[str, Any]) -> str:
        return str(body["invoice"])

    def write(self, path: str, key: str, body: dict[str, Any]) -> tuple[Any, bool]:
        known = key in self.entries
        entry = self.entries.setdefault(key, {**body, "number": len(self.entries) + 1})
        return entry, not known


class Tasks(Remote):
    """Opens a task for whatever it gets. People can see them; callers cannot ask."""

    name = "TASKS"

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.opened: list[dict[str, Any]] = []

    def read(self, path: str, query: dict[str, list[str]]) -> Any:
        return self.opened

    def about(self, path: str, body: dict[str, Any]) -> str:
        return str(body["title"].removeprefix("Welcome "))

    def write(self, path: str, key: str, body: dict[str, Any]) -> tuple[Any, bool]:
        self.opened.append(body)
        return {"id": len(self.opened)}, True


class Workspaces(Remote):
    """Each has a plan, and keeps it when it is told of an older one."""

    name = "WORKSPACES"

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.known: dict[str, dict[str, Any]] = {}

    def read(self, path: str, query: dict[str, list[str]]) -> Any:
        account = path.rpartition("/")[2]
        return self.known.get(account, {"plan": "none", "version": 0, "url": ""})

    def about(self, path: str, body: dict[str, Any]) -> str:
        return path.rpartition("/")[2]

    def write(self, path: str, key: str, body: dict[str, Any]) -> tuple[Any, bool]:
        account = path.rpartition("/")[2]
        newer = body["version"] > self.read(path, {})["version"]
        if newer:
            self.known[account] = {**body, "url": f"https://{account}.example.com"}
        return self.known[account], newer


class Handler(BaseHTTPRequestHandler):
    @property
    def remote(self) -> Remote:
        assert isinstance(self.server, Remote)
        return self.server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        with self.remote.guard:
            if url.path == "/requests":
                self.answer(200, [request._asdict() for request in self.remote.requests])
            else:
                self.answer(200, self.remote.read(url.path, parse_qs(url.query)))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/faults":
            self.remote.faults.append(content.decode())
            self.answer(200, {})
            return
        body = json.loads(content)
        about = self.remote.about(self.path, body)
        key = self.headers.get("Idempotency-Key") or self.headers.get("Operation") or body["reference"]
        with self.remote.guard:
            fault = self.remote.fault(about)
            answer, done = ({}, False) if fault.startswith("before") else self.remote.write(self.path, key, body)
            request = Request(about, key, done, fault)
            self.remote.requests.append(request)
        self.remote.during(request)
        match fault.partition(" ")[2]:
            case "500":
                self.answer(500, {})
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case "timeout":
                self.remote.closing.wait(30)
            case _:
                self.answer(200, answer)

    do_PUT = do_POST  # noqa: N815 - the base class' way to name it

    def answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' word
        pass


class Remotes:
    """All four, listening while the block lasts."""

    def __init__(self, ports: tuple[int, int, int, int] = (0, 0, 0, 0)) -> None:
        self.mail, self.finance = Mail(ports[0]), Finance(ports[1])
        self.tasks, self.workspaces = Tasks(ports[2]), Workspaces(ports[3])
        self.all: list[Remote] = [self.mail, self.finance, self.tasks, self.workspaces]

    def environment(self) -> dict[str, str]:
        """Where they are, for the application."""
        return {f"{remote.name}_URL": remote.url for remote in self.all}

    def __enter__(self) -> "Remotes":
        for remote in self.all:
            remote.start()
        return self

    def __exit__(self, *_: object) -> None:
        for remote in self.all:
            remote.close()


if __name__ == "__main__":
    with Remotes((8801, 8802, 8803, 8804)) as remotes:
        for remote in remotes.all:
            remote.during = lambda request, name=remote.name: print(f"{name.lower():11} {request}", flush=True)  # type: ignore[misc]
            print(f"{remote.name.lower():11} {remote.url}", flush=True)
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            pass
