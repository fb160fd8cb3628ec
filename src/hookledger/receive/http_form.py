"""Checks of a request's head that llhttp does not make; shared by the intake and the operator's listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import Malformed, WrongEncoding

Headers = Sequence[tuple[bytes, bytes]]
"""Lower-case names."""


def check_form(method: str, version: str, headers: Headers) -> None:
    """Reject heads that a proxy might parse differently, which would allow request smuggling."""
    if version not in ("1.0", "1.1") or method == "SOURCE":  # llhttp accepts ICE/1.0 with it
        raise Malformed("http_malformed", "the request is not HTTP/1.0 or HTTP/1.1")
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version == "1.1"):
        raise Malformed("host_header", "the HTTP/1.1 request has no Host header, or two")
    if check_codings(headers) and version == "1.0":
        raise Malformed("transfer_encoding", "HTTP/1.0 has no Transfer-Encoding")


def check_codings(headers: Headers) -> bool:
    """Whether the body is chunked; no other transfer encoding is accepted."""
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and codings != [b"chunked"]:
        raise WrongEncoding("transfer_encoding", "the only accepted transfer encoding is chunked")
    return bool(codings)


def without_offer(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """Return the head without its offer to upgrade, which Java's client makes. llhttp treats what follows such an
    offer as the other protocol, so the request is parsed again."""
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
