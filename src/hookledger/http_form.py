"""What both HTTP sides, the intake's and the operator's, demand of a request's head beyond what llhttp does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .errors import Malformed, WrongEncoding

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case."""


def check_form(method: str, version: str, headers: Headers) -> None:
    """Refuses what a proxy before us might read otherwise, and so take one request for two."""
    if version not in ("1.0", "1.1") or method == "SOURCE":  # with which llhttp takes ICE/1.0 for HTTP/1.0
        raise Malformed("http_malformed", "this is not HTTP/1.0 or HTTP/1.1")
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version == "1.1"):
        raise Malformed("host_header", "HTTP/1.1 without a Host header, or with two")
    if check_codings(headers) and version == "1.0":
        raise Malformed("transfer_encoding", "HTTP/1.0 has no Transfer-Encoding")


def check_codings(headers: Headers) -> bool:
    """Whether the body is chunked; no other transfer encoding is accepted."""
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and codings != [b"chunked"]:
        raise WrongEncoding("transfer_encoding", "of transfer encodings, chunked alone is accepted")
    return bool(codings)


def without_offer(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """The head again, less its offer to speak another protocol, as Java's client makes it. llhttp takes what follows
    such a head for the other protocol, so it has to be asked again."""
    lines = b"".join(b"%b: %b\r\n" % header for header in _kept(headers))
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version.encode(), lines)


def _kept(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"connection":
            options = [option for option in value.split(b",") if option.strip().lower() != b"upgrade"]
            if options:
                yield name, b",".join(options)
        elif name != b"upgrade":
            yield name, value
