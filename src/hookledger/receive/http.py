"""HTTP/1.1 for `hookledger receive`: llhttp parses; here are the limits, and who speaks when.

One request at a time on each connection, all on the event loop's own thread, which takes a fifth of a general
server's time (decision 0015). TLS, HTTP/2 and all else is left to the proxy before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Literal, Protocol, cast

import httptools

from ..errors import Malformed, Rejected, TooLarge, TooSlow
from ..model import Request
from .request import Limits, check_headers
from .respond import Answer, Response

log = logging.getLogger(__name__)

KEEP_ALIVE = 75.0
"""Seconds that a connection may wait for its next request."""
LINGER = 2.0
"""Seconds that a sender has to read why it was refused before it had said all."""
MAX_CONNECTIONS = 1024
MAX_URL = 8192
ANSWER = 60.0
"""Seconds after which an answer that never came is given up, and its connection with it."""
GRACE = 10.0
"""Seconds that what is being answered has when we stop."""
SWEEP = 1.0
BURST = 32
"""How many requests are taken at once."""


class Site(Protocol):
    """What is served."""

    def max_body(self, method: str, path: str) -> int:
        """How many bytes may be sent there; Rejected if nothing may."""

    def take(self, requests: Sequence[tuple[Request, Answer]]) -> None:
        """Each answer is called once, whatever happens."""

    def refuse(self, error: Exception) -> Response: ...


class Listener:
    """Serves one site on one address until it is told to stop."""

    def __init__(self, site: Site, limits: Limits) -> None:
        self.site = site
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.date = b""
        self.stopping = False
        self._burst: list[Connection] = []
        self._stop = asyncio.Event()
        self._empty = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def serve(self, host: str, port: int) -> None:
        self._tell_date()
        server = await self.loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        sweeper = self.loop.create_task(self._sweep(min(SWEEP, self.limits.seconds)))
        try:
            await self._stop.wait()
            server.close()
            self.stopping = True
            for connection in list(self.connections):
                connection.finish()
            self._empty.clear()
            if self.connections:
                await asyncio.wait_for(self._empty.wait(), GRACE)
        except TimeoutError:
            pass
        finally:
            sweeper.cancel()
            for connection in list(self.connections):
                connection.abort()

    def came(self, connection: Connection) -> None:
        """Soon, not now: first all that came is parsed, then all of it is taken (decision 0029)."""
        if not self._burst:
            self.loop.call_soon(self._take)
        self._burst.append(connection)

    def _take(self) -> None:
        """A part of it at a time, so that the first ones are on their way to disk while the next are looked at."""
        burst, self._burst = self._burst[:BURST], self._burst[BURST:]
        try:
            self.site.take([(connection.request, connection.answer) for connection in burst])
        except Exception as error:
            for connection in burst:
                connection.give_up(error)
        finally:
            if self._burst:
                self.loop.call_soon(self._take)

    def make_room(self) -> bool:
        """Who says nothing gives way to who may."""
        idle = [connection for connection in self.connections if connection.idle]
        if idle:
            longest = min(idle, key=lambda connection: connection.deadline)
            self.connections.discard(longest)
            longest.abort()
        return bool(idle)

    def left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def _sweep(self, every: float) -> None:
        """One look at all connections now and then is far cheaper than a timer for each request."""
        while True:
            await asyncio.sleep(every)
            self._tell_date()
            now = self.loop.time()
            for connection in list(self.connections):
                if connection.deadline < now:
                    connection.overdue()

    def _tell_date(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()


class Connection(asyncio.Protocol):
    """The methods `on_…` are called by the parser, within `data_received`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._remote: str | None = None
        self._phase: Literal["idle", "head", "body", "answer"] = "idle"
        self._deaf = False  # what still comes is not listened to
        self._keep = True
        self._owed = False  # a whole request came, and its answer did not go yet
        self._method = ""
        self.deadline = listener.loop.time() + listener.limits.seconds
        self.request: Request

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        if len(self._listener.connections) >= MAX_CONNECTIONS and not self._listener.make_room():
            self.abort()
            return
        self._listener.connections.add(self)
        peer = transport.get_extra_info("peername")
        self._remote = peer[0] if peer else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._listener.left(self)

    def eof_received(self) -> bool:
        """Who has said all may still be waiting for the answer."""
        self._keep = False
        return self._owed

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError as error:
            # Before the last answer: not taken, since no sender of a POST may do that. It will come again.
            self._deaf, self._keep = True, False
            if not isinstance(error.__context__, Malformed):
                self._refuse(error)
        except httptools.HttpParserError:
            self._refuse(Malformed("http_malformed"))
        if self._phase in ("head", "body"):
            self._check_size(len(data))

    def _stay(self, rest: bytes) -> None:
        """Who offers another protocol, as Java's client does, has sent a request in this one all the same. But the
        parser takes what follows for the other protocol, so it has to be asked again without the offer."""
        if b"upgrade" not in dict(self._headers):  # but CONNECT
            self._refuse(Malformed("http_malformed"))
            return
        kept = [b"%b: %b\r\n" % pair for pair in self._headers if pair[0] not in (b"upgrade", b"connection")]
        self._phase = "idle"
        method, self._parser = self._parser.get_method(), httptools.HttpRequestParser(self)
        self.data_received(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, self._url, b"".join(kept), rest))

    def _check_size(self, more: int) -> None:
        """What the parser keeps to itself has an end too: half a header, the trimmings of tiny chunks."""
        self._size += more
        if self._phase == "head" and self._size > self._listener.limits.header_bytes:
            self._refuse(Malformed("headers_too_large"))
        if self._phase == "body" and self._size > self._listener.limits.header_bytes + 2 * self._max_body:
            self._refuse(TooLarge("body_too_large"))

    def pause_writing(self) -> None:
        self._transport.pause_reading()  # who does not read answers may not ask

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    # ── the parser's side ──

    def on_message_begin(self) -> None:
        if self._phase != "idle":
            raise Malformed("pipelined")
        self._phase = "head"
        self._method = ""
        self._size = self._body_size = self._max_body = 0
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self.deadline = self._listener.loop.time() + self._listener.limits.seconds

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == "head":  # a trailer comes too late to count
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        self._phase = "body"
        path, _, self._query = self._url.partition(b"?")
        if path[:1] != b"/" and b"://" in path:  # as to a proxy; every server must take it
            path = b"/" + path.split(b"://", 1)[1].partition(b"/")[2]
        self._path = path.decode("latin-1")
        self._method = self._parser.get_method().decode("latin-1")
        try:
            self._max_body = self._listener.site.max_body(self._method, self._path)
            waits = check_headers(self._headers, self._listener.limits, self._max_body)
            if len(self._url) > MAX_URL:
                raise Malformed("url_too_long")
        except Rejected as error:
            self._refuse(error)
            return
        if waits:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        self._body_size += len(part)
        if self._body_size <= self._max_body:
            if not self._body:
                self._body = part  # usually all of it, and never copied
            else:
                if isinstance(self._body, bytes):
                    self._body = bytearray(self._body)
                self._body += part
        else:
            self._refuse(TooLarge("body_too_large"))

    def on_message_complete(self) -> None:
        if self._phase != "body":
            return
        self._phase = "answer"
        self.deadline = self._listener.loop.time() + ANSWER
        self._owed = True
        self._keep = self._parser.should_keep_alive()
        body = bytes(self._body)
        self.request = Request(self._method, self._path, self._query, tuple(self._headers), body, self._remote)
        self._listener.came(self)

    # ── the answer ──

    def answer(self, response: Response) -> None:
        if self._owed:
            self._write(response)

    def give_up(self, error: Exception) -> None:
        """The last answer here: one that still came would be taken for the next request's."""
        self._keep = False
        try:
            self.answer(self._listener.site.refuse(error))
        except Exception:
            log.exception("a request could not even be refused")
            self.abort()

    def _refuse(self, error: Exception) -> None:
        """Answer without having read all of it."""
        if self._phase != "answer":
            self._phase = "answer"
            self._deaf, self._keep = True, False
            self._write(self._listener.site.refuse(error))

    def _write(self, response: Response) -> None:
        if self._transport.is_closing():
            return
        keep = self._keep and not self._listener.stopping
        body = b"" if self._method == "HEAD" else response.body
        head = _head(response.status, response.headers, len(response.body), keep)
        self._owed = False
        self._transport.write(b"%b%b\r\n%b" % (head, self._listener.date, body))
        if keep:
            self._idle()
        else:
            self._leave()

    def _idle(self) -> None:
        self._phase = "idle"
        self.deadline = self._listener.loop.time() + KEEP_ALIVE

    def _leave(self) -> None:
        """To close on a sender that is still speaking would tear the answer away from it."""
        self.deadline = self._listener.loop.time() + LINGER
        if self._deaf:
            self._transport.write_eof()
        else:
            self._transport.close()

    # ── the listener's side ──

    @property
    def idle(self) -> bool:
        return self._phase == "idle"

    def overdue(self) -> None:
        if self._phase == "head":
            self._refuse(TooSlow("headers_too_slow"))
        elif self._phase == "body":
            self._refuse(TooSlow("body_too_slow"))
        else:
            self.abort()

    def finish(self) -> None:
        """Close as soon as nothing is being answered; what has not come yet will not be taken."""
        if self._phase != "answer":
            self.abort()

    def abort(self) -> None:
        self._deaf = True
        self._transport.abort()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}  # some providers want one that is not among them


@lru_cache(maxsize=64)
def _head(status: int, headers: tuple[tuple[str, str], ...], length: int, keep: bool) -> bytes:
    phrase = _PHRASES.get(status, "Unassigned")
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    if status != HTTPStatus.NO_CONTENT:
        lines.append(f"content-length: {length}")
    if not keep:
        lines.append("connection: close")
    return "".join(line + "\r\n" for line in lines).encode("latin-1")
