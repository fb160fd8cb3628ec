"""Who is the client? The peer of the connection, or whom the trusted proxies before us say they speak for."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from msgspec import Struct

from ..errors import ConfigError
from ..model import Headers

MAX_HOPS = 32
"""Entries of the header that are read, from the right."""
UNIX = "unix"
"""In `trusted_proxies`: peers without an address, as on a Unix socket."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_NODE = re.compile(
    r"\[([0-9A-Fa-f:.]{2,45})\](?::\d{1,5})?|([0-9.]{7,15})(?::\d{1,5})?|([0-9A-Fa-f:.]{2,45})", re.ASCII
)
_PAIR = re.compile(r'([A-Za-z0-9-]+)=(?:"([^"\\]*)"|([^"\s,;=]+))', re.ASCII)


class Proxies(Struct, frozen=True):
    """The proxies before us, and the one header in which they name the client. Made by `proxies`."""

    networks: tuple[Network, ...] = ()
    unix: bool = False
    """Whether a peer without an address is one of them."""
    header: bytes | None = None
    """None: the peer is the client."""

    def __bool__(self) -> bool:
        return bool(self.networks) or self.unix

    def trusts(self, peer: str | None) -> bool:
        if not peer:
            return self.unix
        address = _address(peer.partition("%")[0])
        return address is not None and self._among(address)

    def client(self, peer: str | None, headers: Headers) -> str | None:
        """The client's address; None for a peer that has none.

        Anyone can send the header, and proxies append to it. So it is read from the right, only where the peer is
        trusted, and the first address that is not a trusted proxy's is the client. What cannot be read ends the walk
        at the last address that could.
        """
        if self.header is None or not self.trusts(peer):
            return peer
        client = peer
        for entry in reversed(_entries(self.header, headers)):
            address = _forwarded(entry) if self.header == b"forwarded" else _node(entry)
            if address is None:
                break
            client = str(address)
            if not self._among(address):
                break
        return client

    def _among(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


NO_PROXIES = Proxies()


def proxies(trusted: Iterable[str], header: str | None = None) -> Proxies:
    """From the settings; ConfigError for what cannot work."""
    trusted = list(trusted)
    if header is not None and not trusted:
        raise ConfigError("forwarded_header is believed from trusted proxies only: set trusted_proxies")
    if header is not None and not _HEADER.fullmatch(header):
        raise ConfigError(f"forwarded_header: {header!r} is not the name of a header")
    return Proxies(
        tuple(_network(text) for text in trusted if text != UNIX),
        UNIX in trusted,
        None if header is None else header.lower().encode(),
    )


def rate_limited_as(client: str | None) -> str:
    """What the limits per address count: an IPv6 client by its /64, which is what one customer gets."""
    address = _address((client or "").partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address or client or "")


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ConfigError(
            f"trusted_proxies: {text!r} is no address or network such as 10.0.0.0/8, nor {UNIX!r}"
        ) from None


def _entries(name: bytes, headers: Headers) -> list[str]:
    """The header's entries in order, several lines as one. Split at every comma: no address holds one, so a quote
    that a client left open swallows nothing that a proxy appended."""
    lines = [value for key, value in headers if key == name]
    entries = b",".join(lines).decode("latin-1").rsplit(",", MAX_HOPS) if lines else []
    return [entry.strip(" \t") for entry in entries[-MAX_HOPS:]]


def _forwarded(entry: str) -> Address | None:
    """The `for=` of one element of RFC 7239."""
    pairs = [_PAIR.fullmatch(part.strip(" \t")) for part in entry.split(";")]
    nodes = [pair[2] or pair[3] for pair in pairs if pair is not None and pair[1].lower() == "for"]
    return _node(nodes[0]) if None not in pairs and len(nodes) == 1 and nodes[0] else None


def _node(text: str) -> Address | None:
    """An address, with or without a port; IPv6 in brackets or bare."""
    found = _NODE.fullmatch(text)
    return None if found is None else _address(found[1] or found[2] or found[3])


def _address(text: str) -> Address | None:
    """An IPv4 address that is written as IPv6 counts as what it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
