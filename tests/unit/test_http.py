"""The receiver's HTTP/1.1: its limits, and who speaks when."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from hookledger.clock import Seconds
from hookledger.errors import Rejected, UnknownSource
from hookledger.model import Request
from hookledger.receive import connection, http, respond
from hookledger.receive.http import Listener
from hookledger.receive.request import Limits
from hookledger.receive.respond import Answer, Response
from tests.services.ports import free_port

POST = b"POST /stripe?a=1 HTTP/1.1\r\nHost: x\r\nX-Sign: \xe4\r\n"


class Site:
    """Takes bodies of up to 100 bytes at /stripe and sends them back; `slow` ones when told."""

    largest = 100

    def __init__(self) -> None:
        self.taken: list[Request] = []
        self.waiting: list[Callable[[], object]] = []

    def max_body(self, method: str, path: str) -> int:
        if path not in ("/stripe", "/slow", "/empty"):
            raise UnknownSource("unknown_source")
        return self.largest

    def take(self, requests: Sequence[tuple[Request, Answer, float]]) -> None:
        for request, answer, _ in requests:
            self.taken.append(request)
            response = Response(204) if request.path == "/empty" else Response(202, request.body)
            if request.path == "/slow":
                self.waiting.append(partial(answer, response))
            else:
                answer(response)

    def error_response(self, error: Rejected) -> Response:
        return respond.rejected(error)


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a listener that has just been started."""
    async with asyncio.timeout(60):
        while True:
            with suppress(ConnectionRefusedError):
                return await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(
    site: Site, **limits: object
) -> AsyncIterator[tuple[Listener, asyncio.StreamReader, asyncio.StreamWriter]]:
    listener, port = Listener(site, Limits(**limits)), free_port()  # type: ignore[arg-type]
    serving = asyncio.create_task(listener.serve("127.0.0.1", port))
    reader, writer = await connected(port)
    try:
        yield listener, reader, writer
    finally:
        writer.close()
        listener.stop()
        await asyncio.wait_for(serving, 60)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, dict[bytes, bytes]]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    status, *lines = head[:-4].split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines)
    return int(status.split()[1]), await reader.readexactly(int(headers.get(b"content-length", 0))), headers


async def test_requests_follow_one_another() -> None:
    site = Site()
    async with listening(site) as (_, reader, writer):
        writer.write(POST + b"Content-Length: 5\r\n\r\nhello")
        status, body, headers = await answer(reader)
        assert (status, body) == (202, b"hello")
        assert headers[b"date"].endswith(b"GMT")
        chunked = b"oding: chunked\r\n\r\n2\r\nhe"
        for part in (POST[:9], POST[9:], b"Transfer-Enc", chunked, b"\r\n3\r\nllo\r\n0\r\n", b"\r\n"):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        assert (await answer(reader))[:2] == (202, b"hello")
        # and an empty line too many
        writer.write(POST.replace(b"stripe", b"empty") + b"Content-Length: 0\r\n\r\n\r\n")
        assert (await answer(reader))[0] == 204
        writer.write(POST + b"Connection: close\r\nContent-Length: 1\r\n\r\nx")
        assert (await answer(reader))[2][b"connection"] == b"close"
        assert await reader.read() == b""
    first = site.taken[0]
    assert (first.method, first.path, first.query, first.remote) == ("POST", "/stripe", b"a=1", "127.0.0.1")
    assert first.headers == ((b"host", b"x"), (b"x-sign", b"\xe4"), (b"content-length", b"5"))


async def test_permission_to_continue() -> None:
    async with listening(Site()) as (_, reader, writer):
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert (await answer(reader))[0] == 100
        writer.write(b"hello")
        assert (await answer(reader))[0] == 202


async def test_a_protocol_that_we_do_not_speak_is_not_taken_up() -> None:
    async with listening(Site()) as (_, reader, writer):
        for _ in range(2):
            writer.write(POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhe")
            await asyncio.sleep(0.01)
            writer.write(b"llo")
            assert (await answer(reader))[:2] == (202, b"hello")


async def test_an_offer_of_another_protocol_may_come_with_a_last_request() -> None:
    async with listening(Site()) as (_, reader, writer):
        writer.write(POST + b"Connection: close, Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi")
        status, body, headers = await answer(reader)
        assert (status, body, headers[b"connection"]) == (202, b"hi", b"close")
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"POST /nobody HTTP/1.1\r\nHost: x\r\n", 404, b"unknown_source"),
        (POST + b"Content-Length: 101\r\n", 413, b"body_too_large"),
        (POST + b"Host: y\r\nContent-Length: 1\r\n", 400, b"host_header"),
    ],
)
async def test_an_offer_of_another_protocol_changes_no_rejection(
    sent: bytes, status: int, reason: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Site()) as (_, reader, writer):
        writer.write(sent + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert (await answer(reader))[:2] == (status, b'{"error":"%b"}' % reason)
    assert not caplog.records


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (POST + b"X: " + b"x" * 20_000 + b"\r\n\r\n", 400),
        (POST + b"X: " + b"x" * 20_000, 400),
        (POST + b"X: x\r\n" * 70 + b"\r\n", 400),
        (b"POST /stripe HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", 400),
        (POST + b"Host: y\r\nContent-Length: 2\r\n\r\nhi", 400),
        (POST.replace(b"1.1", b"1.0") + b"Host: x\r\nContent-Length: 2\r\n\r\nhi", 400),
        (POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 400),
        (POST.replace(b"1.1", b"2.0") + b"Content-Length: 2\r\n\r\nhi", 400),
        (POST.replace(b"1.1", b"0.9") + b"Content-Length: 2\r\n\r\nhi", 400),
        (b"SOURCE /stripe ICE/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 400),
        (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 400),
        (b"POST /nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", 404),
        (POST + b"Content-Length: 101\r\n\r\n", 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 20_000, 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: " + b"x" * 20_000, 413),
        (POST + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", 415),
        (POST, 408),
        (POST + b"Content-Length: 5\r\n\r\nhell", 408),
    ],
)
async def test_what_is_refused_before_it_is_read(sent: bytes, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER", 0.5)
    site = Site()
    async with listening(site, seconds=Seconds("200ms" if status == 408 else "60s")) as (_, reader, writer):
        writer.write(sent)
        assert (await answer(reader))[0] == status
        assert await asyncio.wait_for(reader.read(), 60) == b""
    assert not site.taken


@pytest.mark.parametrize("begun", [b"0\r\nX-T: ", b"0\r\n", b"1;"], ids=["trailer", "its name", "chunk"])
async def test_bytes_that_are_no_body_are_bounded(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "largest", 8 * 1024 * 1024)
    site = Site()
    async with listening(site) as (listener, reader, writer):
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + begun)
        told = asyncio.create_task(answer(reader))
        for _ in range(100):
            writer.write(b"a" * 10_000)
            await asyncio.sleep(0.001)
        assert (await told)[:2] == (400, b'{"error":"headers_too_large"}')
        assert listener.budget.held == 0
    assert not site.taken


async def test_large_head_and_trailer_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes between names and values are not counted, and no byte is counted twice."""
    monkeypatch.setattr(Site, "largest", 100_000)
    async with listening(Site()) as (_, reader, writer):
        lines = b"".join(b"X-%02d: %b\r\n" % (n, b"x" * 266) for n in range(60))
        writer.write(POST + b"Transfer-Encoding: chunked\r\n" + lines + b"\r\n")
        for part in (b"5", b"\r\nhel", b"lo\r\n", b"0\r\nX-T: ", b"x" * 16_000, b"\r\n", b"\r\n"):
            await asyncio.sleep(0.01)
            writer.write(part)
        assert (await answer(reader))[:2] == (202, b"hello")


async def test_a_second_request_before_the_first_answer_is_not_taken() -> None:
    site = Site()
    async with listening(site) as (_, reader, writer):
        slow = POST.replace(b"stripe", b"slow")
        writer.write((slow + b"Content-Length: 1\r\n\r\n1") * 2)
        while not site.waiting:
            await asyncio.sleep(0.01)
        site.waiting.pop()()
        assert (await answer(reader))[2][b"connection"] == b"close"
        assert await reader.read() == b""
    assert len(site.taken) == 1


async def test_what_is_being_answered_is_answered_before_the_end() -> None:
    site = Site()
    async with listening(site) as (listener, reader, writer):
        writer.write(POST.replace(b"stripe", b"slow") + b"Content-Length: 1\r\n\r\n1")
        while not site.waiting:
            await asyncio.sleep(0.01)
        listener.stop()
        await asyncio.sleep(0.05)
        site.waiting.pop()()
        assert (await answer(reader))[0] == 202
        assert await reader.read() == b""


async def test_no_more_connections_than_we_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 0)
    async with listening(Site()) as (_, reader, _writer):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer(reader)


async def test_who_has_said_all_is_answered_after_closing_their_side() -> None:
    site = Site()
    async with listening(site) as (_, reader, writer):
        writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
        writer.write_eof()
        while not site.waiting:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        site.waiting[0]()
        assert (await answer(reader))[:2] == (202, b"hi")
        assert await reader.read() == b""


async def test_who_says_nothing_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    site = Site()
    async with listening(site) as (listener, _, writer):
        port = writer.get_extra_info("peername")[1]
        others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        reader, last = others[-1]
        last.write(POST + b"Content-Length: 2\r\n\r\nhi")
        assert (await answer(reader))[:2] == (202, b"hi")
        assert len(listener.connections) <= 2
        for _, other in others:
            other.close()


async def test_every_request_gets_an_answer_whatever_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    monkeypatch.setattr(site, "error_response", lambda error: respond.unavailable())

    def broken(*args: object) -> int:
        raise RuntimeError("a defect")

    for name in ("take", "max_body"):
        with monkeypatch.context() as patch:
            patch.setattr(site, name, broken)
            async with listening(site) as (_, reader, writer):
                writer.write(POST + b"Content-Length: 2\r\n\r\nhi")
                assert (await answer(reader))[0] == 503, name


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST http://example.test/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 202),
        (POST + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\nhi", 100),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 415),
        (b"POST /stripe?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 400),
        (POST + b"Content-Encoding: identity \r\nContent-Length: 2\r\n\r\nhi", 202),
        (b"POST /stripe HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", 202),
    ],
    ids=["absolute", "expect", "coding", "long url", "blanks", "old"],
)
async def test_unusual_but_unambiguous_requests(head: bytes, status: int) -> None:
    async with listening(Site()) as (_, reader, writer):
        writer.write(head)
        line = await asyncio.wait_for(reader.readline(), 60)
        assert int(line.split()[1]) == status
