"""What headers of a delivery may say of where it belongs: little, and only in one form."""

import pytest

from hookledger.model import pack_headers
from hookledger.observe.correlation import NO_ORIGIN, Origin, TraceContext, kept_origin, origin_of, trace_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.upper(),
        f"{GOOD} ",
        f"{GOOD}\n",
        f"{GOOD}-more",
        f"01-{TRACE}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}",
        "００-" + GOOD[3:],
    ],
)
def test_a_malformed_traceparent_says_nothing(text: str) -> None:
    assert trace_context(text) is None
    assert kept_origin(pack_headers([(b"traceparent", text.strip("\n").encode())])).trace is None or "\n" in text


def test_a_traceparent() -> None:
    assert trace_context(GOOD) == TraceContext(TRACE, SPAN, "01")
    assert str(trace_context(GOOD)) == GOOD
    assert trace_context(None) is None


@pytest.mark.parametrize("text", ["req-1", "a", "A" * 128, "Root=1-67891233-abcdef012345678912345678", "a/b:c@d+e=f"])
def test_a_request_id(text: str) -> None:
    assert origin_of([(b"x-request-id", text.encode())]) == Origin(text)


@pytest.mark.parametrize(
    "text", ["", " ", "two words", "A" * 129, "-a", "a\x1b[2J", "ü", "a;b", "a\tb", "${jndi:ldap://x}", "<b>", "a'--"]
)
def test_a_malformed_request_id_says_nothing(text: str) -> None:
    assert origin_of([(b"x-request-id", text.encode())]) == NO_ORIGIN


def test_a_repeated_header_says_nothing() -> None:
    twice = [(b"x-request-id", b"a"), (b"x-request-id", b"a"), (b"traceparent", GOOD.encode())]
    assert origin_of(twice) == Origin(None, TraceContext(TRACE, SPAN, "01"))
    assert origin_of([*twice[2:], *twice[2:]]) == NO_ORIGIN


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-request-id", b"req-1")],
        [(b"host", b"a"), (b"traceparent", GOOD.encode()), (b"x-request-id", b"req-1"), (b"x-b", b"c")],
        [(b"x-request-id", b"req-1"), (b"x-request-id", b"req-2")],
        [(b"x-other", b"x-request-id: forged"), (b"not-traceparent", GOOD.encode())],
    ],
)
def test_kept_headers_say_what_the_request_said(headers: list[tuple[bytes, bytes]]) -> None:
    assert kept_origin(pack_headers(headers)) == origin_of(headers)
