"""An HTTP server on loopback, in a thread: what the providers' APIs of the tests have in common.

It shares no code with what it tests.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar


class Service:
    """`handler`: the class of its answers, which finds this service as `self.service`."""

    def __init__(self, handler: type["Handler"]) -> None:
        self.gate = threading.Event()
        """Ends what hangs."""
        self._server = _Server(("127.0.0.1", 0), type("Handler", (handler,), {"service": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    service: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    def do_GET(self) -> None:
        self.reply(b"")

    def do_POST(self) -> None:
        self.reply(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def reply(self, body: bytes) -> None:
        raise NotImplementedError

    def answer(self, status: int, content: Any, **headers: str) -> None:
        """Bytes as they are, anything else as JSON without blanks."""
        data = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


S = TypeVar("S", bound=Service)


@contextmanager
def started(service: S) -> Iterator[S]:
    service.start()
    try:
        yield service
    finally:
        service.stop()
