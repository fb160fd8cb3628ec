"""One HTTP/1.1 connection of `hookledger receive`. llhttp parses; this module enforces limits and turn-taking."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING, Literal, cast

import httptools

from ..errors import Malformed, TooLarge, TooSlow, Unavailable
from ..model import Request
from .budget import SMALL, no_room
from .http_form import without_offer
from .request import check_headers
from .respond import Response, head

if TYPE_CHECKING:
    from .http import Listener

log: logging.Logger = logging.getLogger(__name__)

KEEP_ALIVE = 75.0
"""Seconds that a connection may wait for its next request."""
LINGER = 2.0
"""Seconds for a sender to read the error response to a request that it has not sent completely."""
ANSWER = 60.0
"""Seconds to wait for an answer before the connection is closed."""
MAX_URL = 8192
MAX_PARTS = 4096
"""Parts in which a body may arrive, plus one for each SMALL_PART bytes: each costs half a microsecond, and a sender
that signed the body has all of it."""
SMALL_PART = 16
MAX_UNREAD = 16_384
"""Bytes of unread answers beyond which the sender's next request is not read."""

_SPENT = httptools.HttpRequestParser(None)
"""Replaces a connection's parser when it is done: parser and connection refer to each other, and would wait for the
cyclic garbage collector."""


class Connection(asyncio.Protocol):
    """One sender with one upload at a time; between requests it holds no request data. The parser calls the `on_…`
    methods within `data_received`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self.remote: str | None = None
        self.phase: Literal["idle", "head", "body", "answer"] = "idle"
        self._discarding = False  # further input is ignored
        self._blocked = False  # until the sender reads its answers
        self._keep = True
        self.owed: bool = False  # a complete request waits for its answer
        self.authentic: bool = False  # an event from here was recorded
        self.held = 0
        self._max_headers = listener.limits.headers
        self._size = self._unseen = self._max_body = self._parts = 0
        self._seen = -1
        self._method = ""
        self.started: float = listener.loop.time()
        self.deadline: float = self.started + listener.limits.seconds

    # ── called by the transport ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        if not self._listener.admit(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(MAX_UNREAD)
        peer = transport.get_extra_info("peername")
        self.remote = peer[0] if peer else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._listener.closed(self)

    def eof_received(self) -> bool:
        """Keep the connection open for an answer that is still due."""
        self._keep = False
        return self.owed

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._wait_turn()
            return
        rest: bytes | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            self._discarding, self._keep = True, False
            self._reject(cast(Exception, error.__context__))
        except httptools.HttpParserError:
            self._reject(Malformed("http_malformed"))
        if rest is not None:
            self._stay(rest)  # outside the except block, or the next error would get this one as its context
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
        """Ignore the offer to upgrade and parse the request as HTTP/1.1."""
        if b"upgrade" not in dict(self._headers):  # CONNECT
            self._reject(Malformed("http_malformed"))
            return
        parser = self._parser
        self.phase = "idle"
        self._parser = httptools.HttpRequestParser(self)
        head = without_offer(parser.get_method(), self._url, parser.get_http_version(), self._headers)
        self.data_received(head + rest)

    def _check_size(self, more: int) -> None:
        """Limit also what the parser buffers: partial headers, partial trailers and chunk extensions."""
        self._size += more
        self._unseen += more
        if self.phase == "body" and self.held != self._seen:
            self._seen = self.held
            self._unseen = 0
        if self._unseen > self._listener.limits.header_bytes:
            self._reject(Malformed("headers_too_large"))
        elif self.phase == "body" and self._size > self._listener.limits.header_bytes + 2 * self._max_body:
            self._reject(TooLarge("body_too_large"))

    def pause_writing(self) -> None:
        self._blocked = True  # no further request until the answers are read
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._blocked = False
        self._transport.resume_reading()

    # ── called by the parser: an exception ends the parsing and becomes the answer ──

    def on_message_begin(self) -> None:
        if self.phase != "idle":
            # HTTP does not allow pipelining after a POST; the sender will repeat the request.
            raise Malformed("pipelined")
        self.phase = "head"
        self._method = ""
        self._size = self._unseen = self._max_body = self._parts = 0
        self._seen = -1  # body bytes; the end of the head counts as progress too
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._trailers: list[tuple[bytes, bytes]] = []
        self._body: bytes | io.BytesIO = b""
        self.started = now = self._listener.loop.time()
        self.deadline = now + self._listener.limits.seconds

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers if self.phase == "head" else self._trailers  # trailers are limited, then ignored
        headers.append((name.lower(), value.rstrip(b" \t")))
        if len(headers) > self._max_headers:
            raise Malformed("headers_too_large")

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        self.phase = "body"
        path, _, self._query = self._url.partition(b"?")
        if path[:1] != b"/" and b"://" in path:  # absolute form, as sent to a proxy; every server must accept it
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
            return  # dropped while these bytes were parsed
        if self.held + len(part) > self._max_body:
            raise TooLarge("body_too_large")
        if not self._body:
            self._body = part  # usually the whole body, not copied
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
        body = self._body if isinstance(self._body, bytes) else self._body.getvalue()  # getvalue copies nothing
        request = Request(self._method, self._path, self._query, tuple(self._headers), body, self.remote)
        self._url = self._query = self._body = b""
        self._headers, self._trailers = [], []
        self._listener.received(self, request)

    def _release(self) -> None:
        """Stop reading. A request that is being recorded still counts in the budget until its answer."""
        self._discarding = True
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
        """Answer with an error and close: a later answer could be mistaken for the next request's."""
        self._keep = False
        try:
            self.answer(self._listener.site.error_response(error))
        except Exception:
            log.exception("a request could not be answered: internal error; its connection is closed")
            self.abort()

    def _reject(self, error: Exception) -> None:
        """Answer before the whole request is read."""
        if self.phase != "answer":
            self.phase = "answer"
            self._keep = False
            self._release()
            self._write(self._listener.site.error_response(error))

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
            self._close()

    def _close(self) -> None:
        """Close, but only half if the sender is still sending: a full close could discard the answer."""
        if self._discarding:
            self._transport.write_eof()
        else:
            self._transport.close()

    # ── called by the listener ──

    def drop(self) -> None:
        self._reject(no_room())

    def overdue(self) -> None:
        if self.phase in ("head", "body"):
            self._reject(TooSlow("headers_too_slow" if self.phase == "head" else "body_too_slow"))
        else:
            self.abort()

    def evict(self, *, answer: bool) -> None:
        """Close for a new connection. `answer`: send 503 first if a request is incomplete."""
        if answer and self.phase in ("head", "body"):
            self._reject(Unavailable("all connections are taken").because("no_room"))
            self._transport.close()
        else:
            self.abort()

    def finish(self) -> None:
        """Close unless an answer is due; incomplete requests are dropped."""
        if self.phase != "answer":
            self.abort()

    def abort(self) -> None:
        self._discarding = True
        self._transport.abort()
