"""HTTP/1.1 for the operator's listener: llhttp parses, an ASGI application answers; here are the limits between them.

A connection that has not sent a whole request is *waiting*. Each address may have a number of those, and so may the
listener: beyond it the oldest is closed for the newcomer. One whose answer is not being read, and blocks us, gives
way when there is no room for another connection at all. So a request that is sent without delay is answered, however
many connections others hold open (decision 0036).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from email.utils import formatdate
from http import HTTPStatus

import msgspec

from .http_request import HttpRequest, Message, Refused

log: logging.Logger = logging.getLogger(__name__)

MAX_WAITING = 256
MAX_WAITING_EACH = 32
"""Waiting connections per client address."""
MAX_CONNECTIONS = 512
"""Connections in total, waiting or being answered."""
MAX_HEAD = 64 * 1024
CHUNK = 64 * 1024
HEAD_SECONDS = 10.0
"""Seconds for a request's line and headers, and for the first byte of a new connection."""
BODY_SECONDS = 10.0
"""Seconds for a body, plus one for every BODY_RATE bytes received."""
BODY_RATE = 64 * 1024
KEEP_ALIVE = 30.0
WRITE_SECONDS = 10.0
"""Seconds for a client to read what is buffered."""
BODILESS = (204, 304)
"""Statuses whose answers have no body."""
LINGER = 2.0
"""Maximum seconds to discard the rest of a request that was answered before its end."""

App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
Share = Callable[[str | None], str | None]
"""Returns the client that an address counts as; None: a proxy, to which only the limits in total apply."""
Groups = dict[str | None, dict["_Connection", None]]
"""Connections by client, oldest first."""


class HttpListener:
    def __init__(self, app: App, share: Share = lambda peer: peer) -> None:
        self.app = app
        self.stopping: bool = False
        self._share = share
        self._connections: set[_Connection] = set()
        self._waiting: Groups = {}
        self._unread: Groups = {}
        self._stop = asyncio.Event()
        self._empty = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def serve(self, host: str, port: int) -> None:
        """Serve until stopped, then finish running requests."""
        await self._until_stopped(await asyncio.start_server(self._connected, host, port, limit=CHUNK, backlog=1024))

    async def serve_on(self, listening: socket.socket) -> None:
        """The same on a socket that listens already."""
        await self._until_stopped(await asyncio.start_server(self._connected, sock=listening, limit=CHUNK))

    async def _until_stopped(self, server: asyncio.Server) -> None:
        try:
            await self._stop.wait()
            server.close()
            self.stopping = True
            for connection in [one for group in self._waiting.values() for one in group]:
                connection.abort()
            while self._connections:
                self._empty.clear()
                await self._empty.wait()
        finally:
            server.close()
            for connection in list(self._connections):
                connection.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        connection = _Connection(self, reader, writer, peer[:2] if peer else None)
        connection.share = self._share(peer[0] if peer else None)
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room(self._waiting, self._unread):
            connection.abort()
            return
        self._connections.add(connection)
        try:
            await connection.run()
        except asyncio.CancelledError:
            log.debug("an operator connection was closed during its answer")
        finally:
            self.no_longer_waits(connection)
            self._connections.discard(connection)
            self._empty.set()
            connection.abort()

    def waits(self, connection: _Connection) -> None:
        """Count a connection that has not sent a whole request; at a limit, close an older one first."""
        mine = self._waiting.setdefault(connection.share, {})
        if connection.share is not None and len(mine) >= MAX_WAITING_EACH:
            self._drop_oldest(mine)
        elif sum(map(len, self._waiting.values())) >= MAX_WAITING:
            self._make_room(self._waiting)
        mine[connection] = None

    def no_longer_waits(self, connection: _Connection) -> None:
        _remove(connection, self._waiting)

    @contextlib.contextmanager
    def unread(self, connection: _Connection) -> Iterator[None]:
        """Count a connection whose answer is blocked until the client reads."""
        self._unread.setdefault(connection.share, {})[connection] = None
        try:
            yield
        finally:
            _remove(connection, self._unread)

    def _make_room(self, *kinds: Groups) -> bool:
        """Close a connection of the client with most of these kinds: its oldest of the first kind that it has. Return
        whether there was one."""
        count = Counter(share for kind in kinds for share, group in kind.items() for _ in group)
        for share, _ in count.most_common(1):
            self._drop_oldest(next(kind[share] for kind in kinds if kind.get(share)))
        return bool(count)

    def _drop_oldest(self, group: dict[_Connection, None]) -> None:
        oldest = next(iter(group))
        del group[oldest]
        oldest.abort()


def _remove(connection: _Connection, groups: Groups) -> None:
    group = groups.get(connection.share, {})
    group.pop(connection, None)
    if not group:
        groups.pop(connection.share, None)


class _Connection:
    share: str | None = None

    def __init__(
        self,
        listener: HttpListener,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: tuple[str, int] | None,
    ) -> None:
        self._listener = listener
        self.reader = reader
        self.writer = writer
        self._client = client
        self.over: asyncio.Event = asyncio.Event()
        """Set when we close the connection."""

    def abort(self) -> None:
        self.over.set()
        self.writer.transport.abort()

    async def run(self) -> None:
        first = True
        with contextlib.suppress(OSError):  # TimeoutError is one
            while await self._next(HEAD_SECONDS if first else KEEP_ALIVE):
                first = False

    async def _next(self, patience: float) -> bool:
        """Handle one request; returns whether another may follow."""
        self._listener.waits(self)
        async with asyncio.timeout(patience):
            data = await self.reader.read(CHUNK)
        if not data:
            return False
        request = HttpRequest()
        try:
            await self._read_head(request, data)
            return await self._answer(request)
        except Refused as refused:
            await self._refuse(refused)
            return False

    async def _read_head(self, request: HttpRequest, data: bytes) -> None:
        size = len(data)
        request.feed(data)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                while not request.has_head:
                    if size > MAX_HEAD:
                        raise Refused(431, "malformed", f"the headers are larger than {MAX_HEAD:,} bytes")
                    data = await self.reader.read(CHUNK)
                    if not data:
                        raise ConnectionResetError
                    size += len(data)
                    request.feed(data)
        except TimeoutError:
            raise Refused(408, "too_slow", f"the headers did not arrive within {HEAD_SECONDS:g} s") from None

    async def _answer(self, request: HttpRequest) -> bool:
        exchange = _Exchange(self, request)
        if request.is_whole:
            self.whole()
        scope = request.scope(self._client)
        try:
            await self._listener.app(scope, exchange.receive, exchange.send)
        except OSError:
            return False  # the client disconnected
        except Exception as error:
            # Only the type: the text of an error may quote a payload. The API has logged the place.
            log.warning("operator request failed: %s", type(error).__name__)
        if exchange.refused is not None and not exchange.started:
            raise exchange.refused
        if exchange.gone:
            return False
        if not exchange.started:
            raise Refused(500, "failed", "internal error: the log says where")
        if not exchange.ended:
            return False  # abort, so that the client does not take it for complete
        if not request.is_whole:
            await self._linger()
            return False
        return request.keep and not self._listener.stopping and exchange.keeps

    def whole(self) -> None:
        """The whole request has arrived."""
        self._listener.no_longer_waits(self)

    async def drain(self) -> None:
        with self._listener.unread(self):
            async with asyncio.timeout(WRITE_SECONDS):
                await self.writer.drain()

    async def _refuse(self, refused: Refused) -> None:
        body = msgspec.json.encode({"error": refused.code, "message": str(refused)})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        self.writer.write(_head(refused.status, [*headers, (b"connection", b"close")]) + body)
        await self._linger()

    async def _linger(self) -> None:
        """Discard the rest of the request for a moment: closing during its upload would lose the answer."""
        self.writer.write_eof()
        async with asyncio.timeout(LINGER):
            while await self.reader.read(CHUNK):
                pass


class _Exchange:
    """One request and its answer, as ASGI sees them."""

    def __init__(self, connection: _Connection, request: HttpRequest) -> None:
        self._connection = connection
        self._writer = connection.writer
        self._request = request
        self._scope = request.scope(None)
        self._began = asyncio.get_running_loop().time()
        self._size = self._unseen = 0
        self._handed_over = False
        self._start: Message | None = None
        self._chunked = self._bodiless = False
        self.started = self.ended = self.gone = False
        self.refused: Refused | None = None
        self.keeps = True
        """Whether the answer has a length or is chunked, so that the connection can stay open."""

    async def receive(self) -> Message:
        request = self._request
        if request.awaits_continue and not self._size:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not request.parts and not request.is_whole:
            if not await self._read():
                return {"type": "http.disconnect"}
        if self._handed_over:
            await self._connection.over.wait()
            return {"type": "http.disconnect"}
        part = request.parts.popleft() if request.parts else b""
        self._handed_over = request.is_whole and not request.parts
        return {"type": "http.request", "body": part, "more_body": not self._handed_over}

    async def _read(self) -> bool:
        try:
            async with asyncio.timeout_at(self._began + BODY_SECONDS + self._size / BODY_RATE):
                data = await self._connection.reader.read(CHUNK)
        except TimeoutError:
            self.refused = Refused(408, "too_slow", "the body arrives too slowly")
            return False
        self.gone = not data
        if data:
            self._feed(data)
        return bool(data) and self.refused is None

    def _feed(self, data: bytes) -> None:
        request, before = self._request, self._request.arrived
        self._size += len(data)
        try:
            request.feed(data)
        except Refused as refused:
            self.refused = refused
        self._unseen = 0 if request.arrived > before else self._unseen + len(data)
        if request.is_whole:
            self._connection.whole()
        elif self._unseen > MAX_HEAD:  # the parser buffers an incomplete trailer
            self.refused = Refused(431, "malformed", f"the trailers are larger than {MAX_HEAD:,} bytes")

    async def send(self, message: Message) -> None:
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the client disconnected")
        if message["type"] == "http.response.start":
            self._start = message
            return
        assert self._start is not None
        if not self.started:
            self.started = True
            self._writer.write(self._head(self._start))
        body = message.get("body", b"")
        if body and not self._bodiless:
            self._writer.write(b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body)
        if not message.get("more_body", False):
            self.ended = True
            if self._chunked:
                self._writer.write(b"0\r\n\r\n")
        try:
            await self._connection.drain()
        except TimeoutError:
            raise ConnectionAbortedError("the client does not read the answer") from None

    def _head(self, start: Message) -> bytes:
        headers = list(start.get("headers", ()))
        sized = any(name == b"content-length" for name, _ in headers)
        self._bodiless = self._scope["method"] == "HEAD" or start["status"] in BODILESS
        if not (sized or self._bodiless):
            self._chunked = self._scope["http_version"] == "1.1"
            self.keeps = self._chunked
            if self._chunked:
                headers.append((b"transfer-encoding", b"chunked"))
        if not (self._request.keep and self._request.is_whole and self.keeps):
            headers.append((b"connection", b"close"))
        return _head(start["status"], headers)


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    first = b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode())
    date = b"date: " + formatdate(usegmt=True).encode()
    return b"\r\n".join([first, date, *(b"%b: %b" % pair for pair in headers), b"", b""])
