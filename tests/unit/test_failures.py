"""The three failures of a call: which are certainly no deed, and which say that the downstream is in trouble."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import httpx2
import pytest

from hookledger import Permanent, Refused, Retry, Wait
from hookledger.retry import is_downstream_failure, is_permanent, is_refused


class Answered(Exception):
    """As the common clients raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 425, 429])
def test_4xx_means_rejected_by_the_remote(status: int) -> None:
    assert is_refused(Answered(status))
    assert is_downstream_failure(Answered(status)) == (status == 429)


@pytest.mark.parametrize("status", [408, 499, 500, 502, 503, 504, 302, 200])
def test_everything_else_is_not(status: int) -> None:
    assert not is_refused(Answered(status))


def test_words_of_the_author() -> None:
    assert is_refused(Refused("nothing there"))
    assert is_refused(Permanent("no such customer"))
    assert not is_downstream_failure(Refused())
    assert is_permanent(Permanent())
    assert not is_permanent(Refused())
    # A time-out that its author wraps as "try again" is still a call that may have happened.
    assert not is_refused(Retry("timed out"))
    assert not is_refused(Wait())


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), ConnectionResetError(), BrokenPipeError(), asyncio.CancelledError(), OSError(5), KeyError("x")],
    ids=lambda error: type(error).__name__,
)
def test_unknown_outcomes(error: BaseException) -> None:
    assert not is_refused(error)


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Takes one request and answers so; None: breaks the connection off."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        connection.recv(65536)
        if answer:
            connection.sendall(answer)
        connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    server.close()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/"


def by_httpx(url: str) -> None:
    httpx2.post(url, timeout=60).raise_for_status()


def by_urllib(url: str) -> None:
    with urllib.request.urlopen(url, b"", timeout=60):
        pass


# proves R32
@pytest.mark.parametrize("call", [by_httpx, by_urllib])
def test_as_real_clients_raise_them(call: object) -> None:
    def failure(url: str) -> BaseException:
        with pytest.raises((httpx2.HTTPError, urllib.error.URLError, http.client.HTTPException, OSError)) as caught:
            call(url)  # type: ignore[operator]
        return caught.value

    assert is_refused(failure(closed_port()))
    with listener(b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n") as url:
        assert is_refused(failure(url))
    with listener(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n") as url:
        assert not is_refused(failure(url))
    with listener(None) as url:
        assert not is_refused(failure(url))
