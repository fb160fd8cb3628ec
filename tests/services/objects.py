"""A provider's API that gives out objects by their path: real HTTP on loopback, which breaks as it is told.

It shares no code with what it tests.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

BAD = "not json"
HUGE = "huge"
HANG = "hang"
CUT = "cut"
SLOW = "slow"


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    status: int = 200
    content: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Objects:
    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        """By path and query: what is there, or a Reply. Anything else is 404."""
        self.trouble: deque[Reply | str | None] = deque()
        """What the next requests get instead; None: nothing goes wrong."""
        self.when_idle: Callable[[], Reply | str | None] = lambda: None
        """What a request gets for which nothing else is said."""
        self.delay: Callable[[], float] = lambda: 0.0
        """Seconds between reading an object and answering with it."""
        self.asked: list[Asked] = []
        self.gate = threading.Event()
        """Ends what hangs, and lets slow answers through."""
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def targets(self) -> list[str]:
        return [asked.target for asked in self.asked]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    api: Objects
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _handle(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.api.asked.append(Asked(self.command, self.path, headers, body))
        trouble = self.api.trouble.popleft() if self.api.trouble else self.api.when_idle()
        match trouble:
            case Reply():
                self._answer(trouble)
            case "not json":
                self._answer(Reply(200, b'{"id": '))
            case "huge":
                self._answer(Reply(200, b" " * 9_000_000))
            case "hang":
                self.api.gate.wait(60)
            case "cut":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b'{"id":')
                self.close_connection = True
            case _:
                if trouble == SLOW:
                    self.api.gate.wait(60)
                found = self.api.objects.get(self.path, Reply(404, {"message": "Not Found"}))
                time.sleep(self.api.delay())
                self._answer(found if isinstance(found, Reply) else Reply(200, found))

    def _answer(self, reply: Reply) -> None:
        data = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def running() -> Iterator[Objects]:
    api = Objects()
    api.start()
    try:
        yield api
    finally:
        api.stop()
