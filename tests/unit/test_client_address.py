"""The client's address: from the one configured header, from the right, through trusted proxies only."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hookledger import Inbox
from hookledger.config import decode
from hookledger.errors import ConfigError
from hookledger.receive.client import MAX_HOPS, Proxies, proxies, rate_limit_key

TRUSTED = ["10.0.0.0/8", "fd00::/8"]
XFF = proxies(TRUSTED, "X-Forwarded-For")
RFC7239 = proxies(TRUSTED, "forwarded")


def client(given: Proxies, peer: str | None, *lines: str) -> str | None:
    header = given.header or b"x-forwarded-for"
    return given.client(peer, (*((header, line.encode("latin-1")) for line in lines), (b"host", b"x")))


@pytest.mark.parametrize(
    ("peer", "lines", "found"),
    [
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.7"], "203.0.113.7"),  # the client wrote the first itself
        ("10.0.0.1", ["203.0.113.7, 10.2.0.1,10.3.0.1"], "203.0.113.7"),
        ("10.0.0.1", ["203.0.113.7", "10.2.0.1"], "203.0.113.7"),
        ("10.0.0.1", ["10.2.0.1", "203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["203.0.113.7:4711"], "203.0.113.7"),
        ("10.0.0.1", ["[2001:DB8::1]:80"], "2001:db8::1"),
        ("10.0.0.1", ["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["::ffff:203.0.113.7"], "203.0.113.7"),
        ("::ffff:10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("fd00::1", ["203.0.113.7, fd00::2"], "203.0.113.7"),
        ("203.0.113.9", ["1.1.1.1"], "203.0.113.9"),  # no proxy of ours
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["10.5.0.1, 10.2.0.1"], "10.5.0.1"),  # all of them are ours: the first one asks
        (None, ["1.1.1.1"], None),
        ("", ["1.1.1.1"], ""),
        ("testclient", ["1.1.1.1"], "testclient"),
        *(
            ("10.0.0.1", [f"1.1.1.1, {odd}, 10.2.0.1"], "10.2.0.1")
            for odd in (
                *("", " ", "unknown", "_hidden", "localhost", "10.0.0.300", "010.0.0.1", "1.1.1.1:", "1.1.1.1:x"),
                *("1.1.1.1:999999", "[::1", "::1]", "[::1]x", "[1.1.1.1]x", "fe80::1%eth0", "[fe80::1%25eth0]", ":"),
                *("for=1.1.1.1", '"1.1.1.1"', "1.1.1.1 2.2.2.2", "1.1.1.1\x00", "¹.1.1.1", "1.1.1.1/32", ".", "-1"),
            )
        ),
    ],
)
def test_from_the_right_through_trusted_hops(peer: str | None, lines: list[str], found: str | None) -> None:
    assert client(XFF, peer, *lines) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["for=203.0.113.7"], "203.0.113.7"),
        (["for=203.0.113.7;proto=https;by=10.0.0.1"], "203.0.113.7"),
        (['For="[2001:db8::1]:4711"; proto=http'], "2001:db8::1"),
        (["for=1.1.1.1, for=203.0.113.7", "for=10.0.0.2"], "203.0.113.7"),
        (['for="1.1.1.1, for=203.0.113.7'], "203.0.113.7"),  # the client's open quote swallows nothing
        (["for=203.0.113.7, proto=https"], "10.0.0.1"),
        (["for=1.1.1.1;for=2.2.2.2"], "10.0.0.1"),
        (["for=unknown"], "10.0.0.1"),
        (["for=_secret, for=10.0.0.2"], "10.0.0.2"),
        (['for=""'], "10.0.0.1"),
        (["for="], "10.0.0.1"),
        (["203.0.113.7"], "10.0.0.1"),
        (['for="203.0.113.7\\""'], "10.0.0.1"),
    ],
)
def test_forwarded_as_rfc_7239_has_it(lines: list[str], found: str) -> None:
    assert client(RFC7239, "10.0.0.1", *lines) == found


def test_only_the_named_header_counts() -> None:
    headers = ((b"x-forwarded-for", b"1.1.1.1"), (b"forwarded", b"for=2.2.2.2"), (b"x-real-ip", b"3.3.3.3"))
    names = (None, "x-forwarded-for", "Forwarded", "X-Real-IP")
    found = [proxies(TRUSTED, name).client("10.0.0.1", headers) for name in names]
    assert found == ["10.0.0.1", "1.1.1.1", "2.2.2.2", "3.3.3.3"]


def test_a_unix_socket_is_trusted_by_name() -> None:
    given = proxies(["unix", *TRUSTED], "x-forwarded-for")
    assert client(given, None, "203.0.113.7, 10.0.0.1") == client(given, "", "203.0.113.7") == "203.0.113.7"
    assert client(given, None) is None
    assert client(given, "203.0.113.9", "1.1.1.1") == "203.0.113.9"


def test_hops_are_bounded() -> None:
    assert client(XFF, "10.0.0.1", "203.0.113.7," + ",".join(["10.0.0.2"] * (MAX_HOPS - 1))) == "203.0.113.7"
    assert client(XFF, "10.0.0.1", "203.0.113.7," + ",".join(["10.0.0.2"] * MAX_HOPS)) == "10.0.0.2"


HOSTILE = st.one_of(
    st.text(st.characters(max_codepoint=255), max_size=60),
    st.text(st.sampled_from("0123456789.:,;=[]\"' \tforFOR_%/-"), max_size=60),
    st.lists(st.ip_addresses().map(str), max_size=5).map(",".join),
)


@given(lines=st.lists(HOSTILE, max_size=4), peer=st.ip_addresses())
@example(lines=['for="', "for=1.1.1.1"], peer=ipaddress.ip_address("10.0.0.1"))
def test_hostile_headers_never_outdo_a_proxy(lines: list[str], peer: ipaddress.IPv4Address) -> None:
    """Whatever a client writes before it, what the proxy appends about the client is what counts."""
    for given_proxies, written in ((XFF, "203.0.113.7"), (RFC7239, "for=203.0.113.7")):
        by_line = client(given_proxies, "10.0.0.1", *lines, written)
        in_line = client(given_proxies, "10.0.0.1", ",".join([*lines, written]))
        assert by_line == in_line == "203.0.113.7"
        if not given_proxies.trusts(str(peer)):
            assert client(given_proxies, str(peer), *lines) == str(peer)


@given(lines=st.lists(HOSTILE, max_size=4))
def test_a_client_is_an_address(lines: list[str]) -> None:
    """Whatever a proxy that lets everything through hands on: what is kept is short and an address."""
    for given_proxies in (XFF, RFC7239):
        found = client(given_proxies, "10.0.0.1", *lines)
        assert found is not None and found == str(ipaddress.ip_address(found)) and "%" not in found
        assert client(given_proxies, found, *lines) == found  # judged again, as a recheck does


@given(address=st.ip_addresses(v=6))
def test_ipv6_is_limited_by_64_bits(address: ipaddress.IPv6Address) -> None:
    other = ipaddress.IPv6Address(int(address) ^ 1)
    if address.ipv4_mapped is None:
        assert rate_limit_key(str(address)) == rate_limit_key(str(other))
        assert rate_limit_key(str(address)) != rate_limit_key(str(ipaddress.IPv6Address(int(address) ^ 1 << 64)))


def test_limits_count_ipv4_and_others_as_they_are() -> None:
    given = ("192.0.2.1", "::ffff:192.0.2.1", "fe80::1%eth0", "somebody", None)
    assert [rate_limit_key(one) for one in given] == ["192.0.2.1", "192.0.2.1", "fe80::/64", "somebody", ""]


@pytest.mark.parametrize(
    ("intake", "problem"),
    [
        ({"forwarded_header": "x-forwarded-for"}, "set trusted_proxies"),
        ({"forwarded_header": "x forwarded", "trusted_proxies": TRUSTED}, "not a header name"),
        ({"forwarded_header": "", "trusted_proxies": TRUSTED}, "not a header name"),
        ({"trusted_proxies": ["everyone"]}, "not an address, a network"),
    ],
)
def test_what_cannot_work_is_said_at_the_start(intake: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        decode({"intake": intake})


def test_sources_of_an_application_heed_the_file() -> None:
    inbox = Inbox()
    source = inbox.source("s", provider="stripe", secrets=["whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM="])
    inbox.bind(decode({"intake": {"trusted_proxies": TRUSTED, "forwarded_header": "x-forwarded-for"}}))
    assert source.endpoint.proxies == XFF
