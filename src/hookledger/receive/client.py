"""Find the client's address: the connection's peer, or the address that trusted proxies forward."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from msgspec import Struct

from ..errors import ConfigError
from ..model import Headers

MAX_HOPS = 32
"""Header entries that are read, from the right."""
UNIX = "unix"
"""In `trusted_proxies`: peers without an address, such as on a Unix socket."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_NODE = re.compile(
    r"\[([0-9A-Fa-f:.]{2,45})\](?::\d{1,5})?|([0-9.]{7,15})(?::\d{1,5})?|([0-9A-Fa-f:.]{2,45})", re.ASCII
)
_PAIR = re.compile(r'([A-Za-z0-9-]+)=(?:"([^"\\]*)"|([^"\s,;=]+))', re.ASCII)


class Proxies(Struct, frozen=True):
    """The trusted proxies, and the one header in which they name the client. Created by `proxies`."""

    networks: tuple[Network, ...] = ()
    unix: bool = False
    """Whether to trust a peer without an address."""
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
        """Return the client's address; None for a peer without one.

        Anyone can send the header, and proxies append to it. So it is read from the right, only if the peer is
        trusted, and the first address that is not a trusted proxy's is the client. An unreadable entry stops the
        search: the last readable address is the client.
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
    """Return the proxies that the settings name; raise ConfigError if the settings are invalid."""
    trusted = list(trusted)
    if header is not None and not trusted:
        raise ConfigError("forwarded_header has no effect without trusted proxies: set trusted_proxies")
    if header is not None and not _HEADER.fullmatch(header):
        raise ConfigError(f"forwarded_header: {header!r} is not a header name")
    return Proxies(
        tuple(_network(text) for text in trusted if text != UNIX),
        UNIX in trusted,
        None if header is None else header.lower().encode(),
    )


def rate_limit_key(client: str | None) -> str:
    """Return what limits per address count: for an IPv6 client its /64, which one customer typically has."""
    address = _address((client or "").partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address or client or "")


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ConfigError(
            f"trusted_proxies: {text!r} is not an address, a network such as 10.0.0.0/8, or {UNIX!r}"
        ) from None


def _entries(name: bytes, headers: Headers) -> list[str]:
    """Return the entries of all lines of the header, in order. Splits at every comma, even in quotes: no address
    contains one, so a client's open quote cannot hide what a proxy appended."""
    lines = [value for key, value in headers if key == name]
    entries = b",".join(lines).decode("latin-1").rsplit(",", MAX_HOPS) if lines else []
    return [entry.strip(" \t") for entry in entries[-MAX_HOPS:]]


def _forwarded(entry: str) -> Address | None:
    """Return the `for=` address of one element of RFC 7239."""
    pairs = [_PAIR.fullmatch(part.strip(" \t")) for part in entry.split(";")]
    nodes = [pair[2] or pair[3] for pair in pairs if pair is not None and pair[1].lower() == "for"]
    return _node(nodes[0]) if None not in pairs and len(nodes) == 1 and nodes[0] else None


def _node(text: str) -> Address | None:
    """Read an address, with or without a port; IPv6 in brackets or bare."""
    found = _NODE.fullmatch(text)
    return None if found is None else _address(found[1] or found[2] or found[3])


def _address(text: str) -> Address | None:
    """Read an address; an IPv4-mapped IPv6 address becomes IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
