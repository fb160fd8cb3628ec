"""One HTTP/1.1 connection of `hookledger receive`: llhttp parses; here are the limits, and who speaks when."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING, Literal, cast

import httptools

from ..errors import Malformed, TooLarge, TooSlow, Unavailable
from ..http_form import without_offer
from ..model import Request
from .budget import SMALL, no_room
from .request import check_headers
from .respond import Response, head

if TYPE_CHECKING:
    from .http import Listener

log = logging.getLogger(__name__)

KEEP_ALIVE = 75.0
"""Seconds that a connection may wait for its next request."""
LINGER = 2.0
"""Seconds that a sender has to read why it was refused before it had said all."""
ANSWER = 60.0
"""Seconds after which an answer that never came is given up, and its connection with it."""
MAX_URL = 8192
MAX_PARTS = 4096
"""Parts in which a body may arrive, and one more for each SMALL_PART bytes: each takes us half a microsecond, and a
sender that has signed the body has all of it at hand."""
SMALL_PART = 16
MAX_UNREAD = 16_384
"""Bytes of answers that a sender may leave unread before its next request is left unread as well."""

_SPENT = httptools.HttpRequestParser(None)
"""In place of a parser that was let go: it refers to its connection, and both would wait for the cyclic collector."""


class Connection(asyncio.Protocol):
    """One sender and one upload at a time; between two requests it holds no part of either. The methods `on_…` are
    called by the parser, within `data_received`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self.remote: str | None = None
        self.phase: Literal["idle", "head", "body", "answer"] = "idle"
        self._deaf = False  # what still comes is not listened to
        self._blocked = False  # until the sender reads its answers
        self._keep = True
        self.owed = False  # a whole request came, and its answer did not go yet
        self.authentic = False  # an event that came here was recorded
        self.held = 0
        self._max_headers = listener.limits.headers
        self._size = self._unseen = self._max_body = self._parts = 0
        self._seen = -1
        self._method = ""
        self.started = listener.loop.time()
        self.deadline = self.started + listener.limits.seconds

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        if not self._listener.admit(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(MAX_UNREAD)
        peer = transport.get_extra_info("peername")
        self.remote = peer[0] if peer else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._listener.left(self)

    def eof_received(self) -> bool:
        """Who has said all may still be waiting for the answer."""
        self._keep = False
        return self.owed

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._wait_turn()
            return
        rest: bytes | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            self._deaf, self._keep = True, False
            self._refuse(cast(Exception, error.__context__))
        except httptools.HttpParserError:
            self._refuse(Malformed("http_malformed"))
        if rest is not None:
            self._stay(rest)  # not while an error is handled: what is raised next would have that for its context
            return
        if self.phase in ("head", "body"):
            self._check_size(len(data))
        if self.held > SMALL:
            self._wait_turn()

    def _wait_turn(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._listener.wait_turn(self)

    def read_on(self) -> None:
        if not (self._blocked or self._transport.is_closing()):
            self._transport.resume_reading()

    def _stay(self, rest: bytes) -> None:
        """Who offers another protocol has sent a request in this one all the same."""
        if b"upgrade" not in dict(self._headers):  # but CONNECT
            self._refuse(Malformed("http_malformed"))
            return
        parser = self._parser
        self.phase = "idle"
        self._parser = httptools.HttpRequestParser(self)
        head = without_offer(parser.get_method(), self._url, parser.get_http_version(), self._headers)
        self.data_received(head + rest)

    def _check_size(self, more: int) -> None:
        """What the parser keeps to itself has an end too: half a header, half a trailer, a chunk's trimmings."""
        self._size += more
        self._unseen += more
        if self.phase == "body" and self.held != self._seen:
            self._seen = self.held
            self._unseen = 0
        if self._unseen > self._listener.limits.header_bytes:
            self._refuse(Malformed("headers_too_large"))
        elif self.phase == "body" and self._size > self._listener.limits.header_bytes + 2 * self._max_body:
            self._refuse(TooLarge("body_too_large"))

    def pause_writing(self) -> None:
        self._blocked = True  # who does not read answers may not ask
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._blocked = False
        self._transport.resume_reading()

    # ── the parser's side: what is raised here ends the parsing, and is the answer ──

    def on_message_begin(self) -> None:
        if self.phase != "idle":
            # Before the last answer: not taken, since no sender of a POST may do that. It will come again.
            raise Malformed("pipelined")
        self.phase = "head"
        self._method = ""
        self._size = self._unseen = self._max_body = self._parts = 0
        self._seen = -1  # of the body; the end of the head counts as progress too
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._trailers: list[tuple[bytes, bytes]] = []
        self._body: bytes | io.BytesIO = b""
        self.started = now = self._listener.loop.time()
        self.deadline = now + self._listener.limits.seconds

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers if self.phase == "head" else self._trailers  # which come too late to count
        headers.append((name.lower(), value.rstrip(b" \t")))
        if len(headers) > self._max_headers:
            raise Malformed("headers_too_large")

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        self.phase = "body"
        path, _, self._query = self._url.partition(b"?")
        if path[:1] != b"/" and b"://" in path:  # as to a proxy; every server must take it
            path = b"/" + path.split(b"://", 1)[1].partition(b"/")[2]
        self._path = path.decode("latin-1")
        self._method = self._parser.get_method().decode("latin-1")
        self._max_body = self._listener.site.max_body(self._method, self._path)
        line = self._method, self._parser.get_http_version()
        waits = check_headers(self._headers, self._listener.limits, self._max_body, line)
        if len(self._url) > MAX_URL:
            raise Malformed("url_too_long")
        if waits:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        if self.phase != "body":
            return  # dropped within the bytes that are being parsed
        if self.held + len(part) > self._max_body:
            raise TooLarge("body_too_large")
        if not self._body:
            self._body = part  # usually all of it, and never copied
        else:
            if isinstance(self._body, bytes):
                self._body = io.BytesIO(self._body)
                self._body.seek(0, io.SEEK_END)
            self._body.write(part)
            self._parts += 1
            if self._parts > MAX_PARTS + self.held // SMALL_PART:
                raise Malformed("chunks_too_small")
        self._listener.budget.add(self, len(part))

    def on_message_complete(self) -> None:
        if self.phase != "body":
            return
        self.phase = "answer"
        self.deadline = self._listener.loop.time() + ANSWER
        self.owed = True
        self._keep = self._parser.should_keep_alive()
        body = self._body if isinstance(self._body, bytes) else self._body.getvalue()  # which copies nothing
        request = Request(self._method, self._path, self._query, tuple(self._headers), body, self.remote)
        self._url = self._query = self._body = b""
        self._headers, self._trailers = [], []
        self._listener.came(self, request)

    def _release(self) -> None:
        """Nothing more will be read. What is still being recorded is in memory, and counts, until its answer."""
        self._deaf = True
        self._parser = _SPENT
        self._url = self._query = self._body = b""
        self._headers, self._trailers = [], []
        if not self.owed:
            self._listener.budget.release(self)

    # ── the answer ──

    def answer(self, response: Response) -> None:
        if self.owed:
            self.owed = False
            self._listener.budget.release(self)
            if response.authentic:
                self.authentic = True
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
        if self.phase != "answer":
            self.phase = "answer"
            self._keep = False
            self._release()
            self._write(self._listener.site.refuse(error))

    def _write(self, response: Response) -> None:
        if self._transport.is_closing():
            return
        keep = self._keep and not self._listener.stopping
        body = b"" if self._method == "HEAD" else response.body
        opening = head(response.status, response.headers, len(response.body), keep)
        self._transport.write(b"%b%b\r\n%b" % (opening, self._listener.date, body))
        self.started = now = self._listener.loop.time()
        if keep:
            self.phase = "idle"
            self.deadline = now + KEEP_ALIVE
        else:
            self.deadline = now + LINGER
            self._leave()

    def _leave(self) -> None:
        """To close on a sender that is still speaking would tear the answer away from it."""
        if self._deaf:
            self._transport.write_eof()
        else:
            self._transport.close()

    # ── the listener's side ──

    def drop(self) -> None:
        self._refuse(no_room())

    def overdue(self) -> None:
        if self.phase in ("head", "body"):
            self._refuse(TooSlow("headers_too_slow" if self.phase == "head" else "body_too_slow"))
        else:
            self.abort()

    def make_way(self, *, tell: bool) -> None:
        """Close for another connection; a sender in the middle of a request is told to come again, if it reads."""
        if tell and self.phase in ("head", "body"):
            self._refuse(Unavailable("all connections are taken"))
            self._transport.close()
        else:
            self.abort()

    def finish(self) -> None:
        """Close as soon as nothing is being answered; what has not come yet will not be taken."""
        if self.phase != "answer":
            self.abort()

    def abort(self) -> None:
        self._deaf = True
        self._transport.abort()
