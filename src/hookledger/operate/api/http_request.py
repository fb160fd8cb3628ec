"""One HTTP/1.1 request of an operator, as llhttp parses it and as ASGI sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools

from ...errors import Rejected
from ...receive.http_form import check_form, without_offer

Message = MutableMapping[str, Any]


class Refused(Exception):
    """An error answer after which the connection closes."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class HttpRequest:
    """What the parser has found; the parser calls the `on_` methods within `feed`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: deque[bytes] = deque()
        self.arrived: int = 0
        """Bytes of the body."""
        self.has_head: bool = False
        self.is_whole: bool = False
        self.keep: bool = False

    def feed(self, data: bytes) -> None:
        rest: bytes | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Rejected):
                raise Refused(400, "malformed", str(error.__context__)) from None
            if not self.is_whole:
                raise Refused(400, "malformed", "the request is not HTTP/1.1") from None
            self.keep = False  # pipelined requests are not read
        if rest is not None:
            self._ignore_offer(rest)

    def _ignore_offer(self, rest: bytes) -> None:
        """Parse a request that offers a protocol upgrade as a plain request."""
        if b"upgrade" not in dict(self.headers):  # CONNECT
            raise Refused(400, "malformed", "CONNECT is not supported: this is not a proxy")
        head = without_offer(self._parser.get_method(), self._url, self._parser.get_http_version(), self.headers)
        self._begin()
        self.feed(head + rest)

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise ValueError("one request at a time")

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # trailers are ignored
            self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.has_head = True
        if not self._parser.should_upgrade():
            check_form(self._method, self._parser.get_http_version(), self.headers)

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)
        self.arrived += len(part)

    def on_message_complete(self) -> None:
        self.is_whole = True
        self.keep = self._parser.should_keep_alive()

    @property
    def _method(self) -> str:
        return self._parser.get_method().decode("latin-1")

    @property
    def awaits_continue(self) -> bool:
        return not self.is_whole and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )

    def scope(self, client: tuple[str, int] | None) -> Message:
        path, _, query = self._url.partition(b"?")
        if path[:1] != b"/" and b"://" in path:  # absolute form, which every server must accept
            path = b"/" + path.split(b"://", 1)[1].partition(b"/")[2]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": self._parser.get_http_version(),
            "method": self._method,
            "scheme": "http",
            "path": unquote_to_bytes(path).decode("utf-8", "surrogateescape"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": client,
            "server": None,
        }
