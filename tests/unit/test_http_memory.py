"""What connections hold, and which of them give way to others."""

import asyncio
import gc
import socket
import struct
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
import uvloop

from hookledger import Inbox
from hookledger.config import decode
from hookledger.errors import Rejected
from hookledger.model import Request
from hookledger.receive import connection, http, respond
from hookledger.receive.budget import MIN_AGE
from hookledger.receive.connection import Connection
from hookledger.receive.respond import Answer, Response
from tests.unit.test_http import POST, Site, answer, listening

MIB = 1024 * 1024
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LargeSite(Site):
    """Takes large bodies, keeps none of them, and answers that they were authentic; `slow` ones when told."""

    largest = 8 * MIB

    def take(self, requests: Sequence[tuple[Request, Answer, float]]) -> None:
        for request, told, _ in requests:
            self.waiting.append(partial(told, Response(202, authentic=True)))
            if request.path != "/slow":
                self.waiting.pop()()

    def error_response(self, error: Exception) -> Response:
        return respond.rejected(error) if isinstance(error, Rejected) else respond.unavailable()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def connect(writer: asyncio.StreamWriter) -> Streams:
    return await asyncio.open_connection("127.0.0.1", writer.get_extra_info("peername")[1])


def reset(writer: asyncio.StreamWriter) -> None:
    """Tear the connection: who only closes may still wait for an answer."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def post(size: int, path: bytes = b"stripe") -> bytes:
    return POST.replace(b"stripe", path) + b"Content-Length: %d\r\n\r\n" % size


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_idle_connection_keeps_no_body(no_collector: None) -> None:
    tracemalloc.start()
    try:
        async with listening(LargeSite()) as (listener, _, writer):
            before = tracemalloc.get_traced_memory()[0]
            others = [await connect(writer) for _ in range(5)]
            for reader, other in others:
                other.write(post(4 * MIB) + bytes(4 * MIB))
                status, _body, _ = await answer(reader)
                assert status == 202
                await other.drain()
            assert listener.budget.held == 0
            grown = tracemalloc.get_traced_memory()[0] - before
            assert grown < 4 * MIB
            for _, other in others:
                other.close()
    finally:
        tracemalloc.stop()


async def test_lost_connection_waits_for_no_collector(no_collector: None) -> None:
    site = LargeSite()
    async with listening(site) as (listener, _, writer):
        others = [await connect(writer) for _ in range(3)]
        await until(lambda: len(listener.connections) == 4)
        seen = [weakref.ref(connection) for connection in listener.connections]
        (first, answered), (_, half), (_, silent) = others
        answered.write(post(2) + b"hi")
        assert (await answer(first))[0] == 202
        half.write(post(4 * MIB) + bytes(MIB))
        await until(lambda: listener.budget.held == MIB)
        for one in (answered, half, silent):
            reset(one)
        await until(lambda: len(listener.connections) == 1)
        await asyncio.sleep(0.05)
        assert listener.budget.held == 0
        assert sum(ref() is not None for ref in seen) == 1


async def test_slowest_upload_gets_503_and_small_ones_continue() -> None:
    site = LargeSite()
    async with listening(site, body_bytes=4 * MIB) as (listener, reader, writer):
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n100000\r\n" + bytes(MIB))  # and no more
        await until(lambda: listener.budget.held == MIB)
        await asyncio.sleep(MIN_AGE + 0.1)
        fast_reader, fast = await connect(writer)
        fast.write(post(MIB + 1) + bytes(MIB + 1))
        assert (await answer(fast_reader))[0] == 202
        status, _, headers = await answer(reader)
        assert (status, headers[b"retry-after"], headers[b"connection"]) == (503, b"5", b"close")
        small_reader, small = await connect(writer)
        small.write(post(65_536) + bytes(65_536))
        assert (await answer(small_reader))[0] == 202
        assert listener.budget.held == 0
        fast.close()
        small.close()


async def test_request_being_recorded_counts_until_its_answer() -> None:
    """Its sender may be gone: the bytes are in memory all the same."""
    site = LargeSite()
    async with listening(site, body_bytes=4 * MIB) as (listener, reader, writer):
        _, gone = await connect(writer)
        gone.write(post(MIB, b"slow") + bytes(MIB))
        await until(lambda: site.waiting)
        reset(gone)
        await until(lambda: len(listener.connections) == 1)
        assert listener.budget.held == MIB
        writer.write(post(MIB + 1) + bytes(MIB + 1))
        assert (await answer(reader))[0] == 503
        site.waiting.pop()()
        assert listener.budget.held == 0


@pytest.mark.parametrize("sent", [b"", POST, POST + b"Content-Length: 9\r\n\r\nhalf"], ids=["silent", "head", "body"])
async def test_slow_connections_give_way_to_new_ones(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 40)
    async with listening(Site()) as (listener, _, writer):
        others = [await connect(writer) for _ in range(60)]
        for _, other in others:
            other.write(sent)
        for number in range(60):
            reader, new = await connect(writer)
            new.write(POST + b"Content-Length: 2\r\n\r\nhi")
            assert (await answer(reader))[:2] == (202, b"hi"), number
            new.close()
        assert len(listener.connections) <= 40
        for _, other in others:
            other.close()


async def test_sender_of_half_a_request_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    async with listening(LargeSite()) as (_, reader, writer):
        writer.write(post(9) + b"half")
        await asyncio.sleep(0.05)
        _, new = await connect(writer)
        assert (await answer(reader))[0] == 503
        assert await reader.read() == b""
        new.close()


async def test_sender_that_does_not_read_is_gone_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is closed too, though nothing more goes out to it."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(connection, "LINGER", 0.1)
    async with listening(LargeSite()) as (listener, _, writer):
        await until(lambda: listener.connections)
        [stuck] = listener.connections
        transport = stuck._transport
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport.write(bytes(8 * MIB))  # as many answers would
        await until(transport.get_write_buffer_size)
        stuck._blocked = False
        transport.resume_reading()
        writer.write(POST)
        await until(lambda: stuck.phase == "head")
        _, new = await connect(writer)
        await until(lambda: stuck not in listener.connections)
        await until(lambda: transport.get_extra_info("socket").fileno() == -1)
        assert not listener._leaving
        new.close()


async def test_connection_that_proved_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 20)
    async with listening(LargeSite()) as (_, reader, writer):
        writer.write(POST + b"Content-Length: 2\r\n\r\nhi")
        assert (await answer(reader))[0] == 202
        others = [await connect(writer) for _ in range(60)]
        for _, other in others:
            other.write(POST)
        await asyncio.sleep(0.05)
        writer.write(POST + b"Content-Length: 2\r\n\r\nhi")
        assert (await answer(reader))[0] == 202
        for _, other in others:
            other.close()


@pytest.mark.parametrize(
    ("before", "headers"), [(b"", 2), (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", 3)], ids=["headers", "trailers"]
)
async def test_many_headers_are_not_read_to_their_end(
    before: bytes, headers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    on_header = Connection.on_header

    def count(connection: Connection, name: bytes, value: bytes) -> None:
        read.append(name)
        on_header(connection, name, value)

    monkeypatch.setattr(Connection, "on_header", count)
    async with listening(Site()) as (listener, reader, writer):
        writer.write(POST + before + b"a:b\r\n" * 20_000)
        assert (await answer(reader))[0] == 400
    assert len(read) <= headers + listener.limits.headers + 1


async def test_tiny_chunks_are_not_read_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[bytes] = []
    on_body = Connection.on_body

    def count(connection: Connection, part: bytes) -> None:
        parts.append(part)
        on_body(connection, part)

    monkeypatch.setattr(Connection, "on_body", count)
    async with listening(LargeSite()) as (listener, reader, writer):
        chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        writer.write(chunked + b"6\r\ntokens\r\n" * 6000 + b"0\r\n\r\n")
        assert (await answer(reader))[0] == 202
        parts.clear()
        writer.write(chunked + b"1\r\nx\r\n" * 150_000 + b"0\r\n\r\n")
        assert (await answer(reader))[:2] == (400, b'{"error":"chunks_too_small"}')
        assert listener.budget.held == 0
    assert len(parts) <= 1.1 * connection.MAX_PARTS


async def test_budget_has_room_for_the_largest_body(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is set, and it is said at the start."""
    settings = decode({"intake": {"limits": {"body_bytes": MIB}}, "database": sqlite_url})
    inbox = Inbox(settings=settings)
    inbox.source("stripe", provider="stripe", secrets=["whsec_made_up_for_the_tests"], max_body=4 * MIB)
    await inbox.migrate()
    await inbox.asgi.start()
    await inbox.asgi.stop()
    assert f"too small for a max_body of {4 * MIB}: using {8 * MIB}" in caplog.text
    async with listening(LargeSite(), body_bytes=inbox.asgi.limits.body_bytes) as (_, reader, writer):
        writer.write(post(4 * MIB) + bytes(4 * MIB))
        assert (await answer(reader))[0] == 202


def test_large_uploads_are_read_in_turns() -> None:
    """And so is what a refused sender still sends."""
    read: list[int] = []
    turns = 0

    class Large(Connection):
        def read_on(self) -> None:
            read.append(turns)
            super().read_on()

    async def main(monkeypatch: pytest.MonkeyPatch) -> None:
        nonlocal turns
        monkeypatch.setattr(http, "Connection", Large)
        async with listening(LargeSite()) as (listener, _, writer):
            others = [await connect(writer) for _ in range(40)]
            for number, (_, other) in enumerate(others):
                other.write(post(8 * MIB) if number % 2 else b"nonsense\r\n\r\n")
            await until(lambda: len(listener.connections) == 41)
            for _, other in others:
                other.write(bytes(MIB))
            async with asyncio.timeout(60):
                while len(read) < 40:
                    turns += 1
                    await asyncio.sleep(0)
            for _, other in others:
                other.close()

    with pytest.MonkeyPatch.context() as monkeypatch:
        uvloop.run(main(monkeypatch))
    assert max(Counter(read[:40]).values()) <= http.TURNS


def test_many_new_connections_are_accepted_quickly() -> None:
    """Turns of the event loop are counted, of which uvloop would take one for each connection."""
    turns = 0

    async def main() -> None:
        nonlocal turns
        async with listening(Site()) as (listener, _, writer):
            address = writer.get_extra_info("peername")
            crowd = [socket.socket() for _ in range(160)]
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(address)
            while len(listener.connections) < 161:
                turns += 1
                await asyncio.sleep(0)
            for one in crowd:
                one.close()

    uvloop.run(main())
    assert turns <= 2 * 160 / http.ACCEPTED
