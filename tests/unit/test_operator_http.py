"""The operator's HTTP side on real sockets: what it reads, what it answers, and whom it hangs up on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hookledger.operate.api import http
from hookledger.operate.api.http import HttpListener
from tests.services.ports import free_port

GET = b"GET /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n"
PATIENCE = 30.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class App:
    """Notes what it is asked, and answers as the path says."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.bodies: list[bytes] = []
        self.go = asyncio.Event()
        self.failed: BaseException | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        try:
            await self._answer(scope, receive, send)
        except BaseException as error:
            self.failed = error
            raise

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == "/nothing":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
            return
        if path == "/refuse":
            await self._whole(send, b"no", 401)
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        if path == "/fail":
            raise RuntimeError("made up")
        if path == "/wait":
            await self.go.wait()
        if path in ("/stream", "/break", "/endless"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            while path == "/endless":
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            if path == "/break":
                raise RuntimeError("made up")
            await send({"type": "http.response.body", "body": b"two", "more_body": False})
        else:
            await self._whole(send, body or b"hello", 200)

    async def _whole(self, send: Any, body: bytes, status: int) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Served:
    def __init__(self) -> None:
        self.app = App()
        self.port = free_port()
        self.listener = HttpListener(self.app)

    async def connect(self, sent: bytes = b"", local: str = "127.0.0.1") -> Streams:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(local, 0))
                    writer.write(sent)
                    await writer.drain()
                    return reader, writer
                await asyncio.sleep(0.01)

    async def ask(self, sent: bytes) -> bytes:
        """All that is said to this until the other side hangs up."""
        reader, writer = await self.connect(sent)
        try:
            return await said(reader)
        finally:
            writer.close()


async def said(reader: asyncio.StreamReader) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                found += part
    return found


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    serving = asyncio.create_task(made.listener.serve("127.0.0.1", made.port))
    yield made
    made.listener.stop()
    made.app.go.set()
    async with asyncio.timeout(PATIENCE):
        await serving


async def one(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of one answer with a length."""
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, await reader.readexactly(length)


async def test_requests_one_after_the_other(served: Served) -> None:
    reader, writer = await served.connect()
    for _ in range(3):
        writer.write(GET)
        head, body = await one(reader)
        assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: ") and body == b"hello"
        assert b"connection: close" not in head
    [scope, _, _] = served.app.scopes
    assert (scope["method"], scope["path"], scope["query_string"]) == ("GET", "/a b", b"c=d")
    assert scope["headers"] == [(b"host", b"x"), (b"x-two", b"1"), (b"x-two", b"2")]
    assert scope["client"][0] == "127.0.0.1"
    writer.close()


async def test_bodies(served: Served) -> None:
    reader, writer = await served.connect(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
    await asyncio.sleep(0.02)
    writer.write(b"cde")
    assert (await one(reader))[1] == b"abcde"
    writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await asyncio.sleep(0.02)
    writer.write(b"2\r\nde\r\n0\r\nX-Late: 1\r\n\r\n")
    assert (await one(reader))[1] == b"abcde"
    writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"ok")
    assert (await one(reader))[1] == b"ok"
    large = bytes(3_000_000)
    writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + large)
    assert (await one(reader))[1] == large
    writer.close()
    assert not any(name == b"x-late" for scope in served.app.scopes for name, _ in scope["headers"])


async def test_streams(served: Served) -> None:
    answer = await served.ask(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head and body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    old = await served.ask(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert old.endswith(b"\r\n\r\nonetwo") and b"chunked" not in old
    broken = await served.ask(b"GET /break HTTP/1.1\r\nHost: x\r\n\r\n")
    assert broken.endswith(b"3\r\none\r\n")  # without an end, so that nobody takes it for all


async def test_head_and_failures(served: Served) -> None:
    answer = await served.ask(b"HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"content-length: 5\r\nconnection: close\r\n\r\n")
    failed = await served.ask(b"GET /fail HTTP/1.1\r\nHost: x\r\n\r\n")
    assert failed.startswith(b"HTTP/1.1 500 ") and b"made up" not in failed


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\nGARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: x\r\n\r\n",
        b"SOURCE / ICE/1.0\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_request(served: Served, sent: bytes) -> None:
    answer = await served.ask(sent)
    assert answer.startswith(b"HTTP/1.1 400 ") and b'"malformed"' in answer
    assert not served.app.scopes


async def test_an_offer_of_another_protocol_is_ignored(served: Served) -> None:
    offer = b"Upgrade: h2c\r\nConnection: upgrade\r\n"
    reader, writer = await served.connect(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n" + offer + b"\r\nbo")
    await asyncio.sleep(0.02)
    writer.write(b"dy")
    assert (await one(reader))[1] == b"body"
    writer.write(GET)
    assert (await one(reader))[1] == b"hello"
    writer.close()


async def test_an_offer_changes_nothing_else(served: Served) -> None:
    closing = await served.ask(GET[:-2] + b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert b"connection: close" in closing and closing.endswith(b"hello")
    old = await served.ask(b"GET /stream HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert old.endswith(b"\r\n\r\nonetwo") and served.app.scopes[-1]["http_version"] == "1.0"
    assert b" 400 " in await served.ask(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")


async def test_an_answer_without_a_body_ends_with_its_head(served: Served) -> None:
    reader, writer = await served.connect(GET.replace(b"/a%20b", b"/nothing"))
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 204 ") and b"transfer-encoding" not in head and b"connection" not in head
    writer.write(GET)
    head, body = await one(reader)
    assert head.startswith(b"HTTP/1.1 200 ") and body == b"hello"
    writer.close()


async def test_what_comes_before_the_answer_is_not_taken(served: Served) -> None:
    answer = await served.ask(GET + GET)
    assert answer.count(b"HTTP/1.1 200") == 1 and len(served.app.scopes) == 1


async def test_large_heads(served: Served) -> None:
    answer = await served.ask(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (4 * http.MAX_HEAD))
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("begun", [b"0\r\nX-T: ", b"0\r\n", b"1;"], ids=["trailer", "its name", "chunk"])
async def test_bytes_that_are_no_body_are_bounded(served: Served, begun: bytes) -> None:
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    answer = await served.ask(head + begun + b"a" * (6 * http.MAX_HEAD))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert served.app.bodies == []


async def test_nonsense_in_a_body(served: Served) -> None:
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await served.connect(head)
    async with asyncio.timeout(PATIENCE):
        while not served.app.scopes:
            await asyncio.sleep(0.01)
    writer.write(b"no chunk\r\n")
    head, body = await one(reader)
    assert head.startswith(b"HTTP/1.1 400 ") and b'"malformed"' in body
    writer.close()


async def test_a_rejection_reaches_a_sender_that_still_sends(served: Served) -> None:
    answer = await served.ask(b"POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n" + bytes(500_000))
    assert answer.startswith(b"HTTP/1.1 401 ") and answer.endswith(b"no")


async def test_half_of_a_body_and_away(served: Served) -> None:
    _, writer = await served.connect(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
    writer.close()
    async with asyncio.timeout(PATIENCE):
        while not served.app.scopes or served.listener._connections:
            await asyncio.sleep(0.01)
    assert served.app.bodies == []


async def test_time_outs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(http, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(http, "KEEP_ALIVE", 0.1)
    assert (await served.ask(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")).startswith(b"HTTP/1.1 408 ")
    late = await served.ask(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
    assert late.startswith(b"HTTP/1.1 408 ")
    assert await served.ask(b"") == b""
    assert (await served.ask(GET)).startswith(b"HTTP/1.1 200 ")  # and then hung up on


async def test_who_does_not_read_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WRITE_SECONDS", 0.1)
    _, writer = await served.connect(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(PATIENCE):
        while served.app.failed is None:
            await asyncio.sleep(0.01)
    assert isinstance(served.app.failed, ConnectionAbortedError)
    writer.close()


async def waiting(served: Served, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(map(len, served.listener._waiting.values())) != count:
            await asyncio.sleep(0.01)


async def test_the_oldest_of_an_address_gives_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_WAITING_EACH", 3)
    other = await served.connect(b"GET / HT", "127.0.0.2")
    mine = []
    for _ in range(5):
        mine.append(await served.connect(b"GET / HT"))
        await waiting(served, min(len(mine), 3) + 1)
    gone = [await said(reader) for reader, _ in mine[:2]]
    assert gone == [b"", b""]
    for reader, writer in (*mine[2:], other):
        writer.write(b"TP/1.1\r\nHost: x\r\n\r\n")
        assert (await one(reader))[1] == b"hello"
    for _, writer in (*mine, other):
        writer.close()
    await waiting(served, 0)


async def test_the_largest_client_gives_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_WAITING", 4)
    other = await served.connect(b"GET / HT", "127.0.0.2")
    await waiting(served, 1)
    mine = [await served.connect(b"GET / HT") for _ in range(20)]
    third = await served.connect(GET, "127.0.0.3")
    assert (await one(third[0]))[1] == b"hello"
    other[1].write(b"TP/1.1\r\nHost: x\r\n\r\n")
    assert (await one(other[0]))[1] == b"hello"
    for _, writer in (other, third, *mine):
        writer.close()


async def test_what_is_being_answered_never_gives_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_WAITING_EACH", 2)
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 6)
    busy = [await served.connect(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(4)]
    async with asyncio.timeout(PATIENCE):
        while len(served.app.scopes) < 4:
            await asyncio.sleep(0.01)
    idle = [await served.connect() for _ in range(5)]
    reader, last = await served.connect(GET)
    assert (await one(reader))[1] == b"hello"
    served.app.go.set()
    for reader, _ in busy:
        assert (await one(reader))[1] == b"hello"
    for writer in (last, *(writer for _, writer in (*busy, *idle))):
        writer.close()


async def test_whose_answers_are_not_read_give_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 6)
    unread = served.listener._unread
    stuck = []
    for local in ("127.0.0.2", *["127.0.0.1"] * 5):
        reader, writer = await served.connect(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n", local)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        stuck.append((reader, writer))
    async with asyncio.timeout(PATIENCE):
        while sum(map(len, unread.values())) < 6:
            await asyncio.sleep(0.01)
    oldest = next(iter(unread["127.0.0.1"]))
    for _ in range(3):
        reader, writer = await served.connect(GET, "127.0.0.3")
        assert (await one(reader))[1] == b"hello"
        writer.close()
    assert "127.0.0.2" in unread and oldest not in unread["127.0.0.1"]
    for _, writer in stuck:
        writer.transport.abort()


async def test_stopping_lets_answers_end(served: Served) -> None:
    reader, writer = await served.connect(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    idle, silent = await served.connect()
    async with asyncio.timeout(PATIENCE):
        while not served.app.scopes:
            await asyncio.sleep(0.01)
    served.listener.stop()
    assert await said(idle) == b""
    served.app.go.set()
    assert (await one(reader))[1] == b"hello"
    assert await said(reader) == b""
    writer.close()
    silent.close()
