"""What is refused is counted, all of it; a little is kept with its bytes, and no secret in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from hookledger.errors import (
    Forbidden,
    Malformed,
    NoKey,
    Rejected,
    TooLarge,
    TooSlow,
    Unauthentic,
    Unavailable,
    UnknownSource,
    WrongEncoding,
    WrongMethod,
)
from hookledger.model import Request, unpack_headers
from hookledger.providers.catalogue import find
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.rejections import MAX_WAITING, MAX_WAITING_BYTES, RejectionSampler, SampleSettings, secrets_of
from hookledger.store.ops.rejections import RejectedRequest
from tests.endpoints import configure

SECRET = "made-up-for-the-tests"
WRONG = Unauthentic("signature_mismatch")
KIB = 1024


class Time:
    def __init__(self) -> None:
        self.now = 60_030.0  # half a minute into one of the clock

    def __call__(self) -> float:
        return self.now


class Written:
    """A store that notes what it was given, and fails as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.meanwhile: Callable[[], object] = lambda: None
        self.sample: list[RejectedRequest] = []
        self.counts: list[dict[tuple[str, str], int]] = []
        self.limits: list[tuple[int, int]] = []

    async def add(
        self, sample: Sequence[RejectedRequest], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None:
        self.meanwhile()
        if self.failures:
            self.failures -= 1
            raise Unavailable
        self.sample += sample
        self.counts.append(dict(counts))
        self.limits.append((most, most_bytes))

    @property
    def bodies(self) -> list[bytes]:
        return [refusal.body for refusal in self.sample]


def endpoint(provider: str = "stripe", name: str = "s") -> Endpoint:
    return configure(name, find(provider), [SECRET])


def request(body: bytes = b"{}", query: bytes = b"", *headers: tuple[bytes, bytes], path: str = "/s") -> Request:
    return Request("POST", path, query, headers, body, "192.0.2.1")


def noted(
    refusals: RejectionSampler, bodies: Sequence[bytes], error: Rejected = WRONG, at: Endpoint | None = None
) -> None:
    for body in bodies:
        refusals.note(error, at or endpoint(), request(body))


async def kept(refusals: RejectionSampler, store: Written) -> list[bytes]:
    """The bodies that the next writing keeps."""
    before = len(store.sample)
    await refusals.flush()
    return store.bodies[before:]


# ── how much ─────────────────────────────────────────────────────────────────


async def test_so_many_a_minute_of_each_source_and_reason() -> None:
    store, clock = Written(), Time()
    refusals = RejectionSampler(store, SampleSettings(per_minute=2), clock)
    noted(refusals, [b"1", b"2", b"3"])
    noted(refusals, [b"4", b"5", b"6"], Malformed("signature_malformed"))
    noted(refusals, [b"7", b"8", b"9"], at=endpoint(name="other"))
    assert await kept(refusals, store) == [b"1", b"2", b"4", b"5", b"7", b"8"]
    assert store.counts == [
        {("s", "signature_mismatch"): 3, ("s", "signature_malformed"): 3, ("other", "signature_mismatch"): 3}
    ]
    clock.now += 59.9
    noted(refusals, [b"10"])  # that it was written makes no room
    assert await kept(refusals, store) == []
    clock.now += 0.1
    noted(refusals, [b"11", b"12", b"13"])
    assert await kept(refusals, store) == [b"11", b"12"]
    assert store.counts[1:] == [{("s", "signature_mismatch"): 1}, {("s", "signature_mismatch"): 3}]


async def test_so_many_wait_for_the_next_writing() -> None:
    store = Written()
    refusals = RejectionSampler(store, SampleSettings(per_minute=10_000), Time())
    noted(refusals, [b"%d" % n for n in range(MAX_WAITING + 5)])
    assert await kept(refusals, store) == [b"%d" % n for n in range(MAX_WAITING)]
    assert store.counts == [{("s", "signature_mismatch"): MAX_WAITING + 5}]
    noted(refusals, [b"later"])
    assert await kept(refusals, store) == [b"later"]


async def test_a_large_body_is_only_counted() -> None:
    store = Written()
    refusals = RejectionSampler(store, SampleSettings(largest=100), Time())
    noted(refusals, [b"x" * 100, b"x" * 101, b"after"])
    assert await kept(refusals, store) == [b"x" * 100, b"after"]
    assert store.counts == [{("s", "signature_mismatch"): 3}]


async def test_so_many_bytes_a_minute_of_each_source_and_reason() -> None:
    """A quarter of what is kept in all, so that noise of one kind does not drive out what matters."""
    store, clock = Written(), Time()
    refusals = RejectionSampler(store, SampleSettings(bytes=400), clock)
    noted(refusals, [b"x" * 60, b"y" * 41, b"z" * 40, b"w"])
    noted(refusals, [b"v"], Malformed("signature_malformed"))
    noted(refusals, [b"u" * 100], at=endpoint(name="other"))
    assert await kept(refusals, store) == [b"x" * 60, b"z" * 40, b"v", b"u" * 100]
    noted(refusals, [b"still the same minute"])
    assert await kept(refusals, store) == []
    clock.now += 60
    noted(refusals, [b"t" * 100, b"s"])
    assert await kept(refusals, store) == [b"t" * 100]


async def test_so_many_bytes_wait_for_the_next_writing() -> None:
    store, large = Written(failures=1), b"x" * (256 * KIB)
    refusals = RejectionSampler(store, SampleSettings(bytes=1024 * KIB * KIB), Time())
    fit = MAX_WAITING_BYTES // len(large)
    noted(refusals, [large] * fit + [b"one too many"])
    await refusals.flush()  # in vain: they wait still
    noted(refusals, [b"one too many"])
    assert await kept(refusals, store) == [large] * fit
    noted(refusals, [b"room again"])
    assert await kept(refusals, store) == [b"room again"]


async def test_the_store_is_told_the_budget() -> None:
    store = Written()
    refusals = RejectionSampler(store, SampleSettings(requests=7, bytes=4000), Time())
    noted(refusals, [b"1"])
    await refusals.flush()
    assert store.limits == [(7, 4000)]


# ── when it cannot be written ────────────────────────────────────────────────


async def test_what_was_not_written_is_written_by_the_next_and_once() -> None:
    store = Written(failures=1)
    refusals = RejectionSampler(store, SampleSettings(), Time())
    noted(refusals, [b"1", b"2"])
    store.meanwhile = lambda: noted(refusals, [b"3"])
    await refusals.flush()
    assert (store.sample, store.counts) == ([], [])
    store.meanwhile = lambda: None
    noted(refusals, [b"4"])
    await refusals.flush()
    await refusals.flush()
    assert store.bodies == [b"1", b"2", b"3", b"4"]
    assert store.counts == [{("s", "signature_mismatch"): 4}], "and nothing when there is nothing"
    assert refusals.reasons == {"signature_mismatch": 4}


async def test_what_waits_stays_bounded_while_the_store_is_away() -> None:
    store = Written(failures=1)
    refusals = RejectionSampler(store, SampleSettings(per_minute=10_000), Time())
    noted(refusals, [b"%d" % n for n in range(MAX_WAITING)])
    store.meanwhile = lambda: noted(refusals, [b"new"] * MAX_WAITING)
    await refusals.flush()
    store.meanwhile = lambda: None
    assert await kept(refusals, store) == [b"%d" % n for n in range(MAX_WAITING)], "the first say how it began"
    assert store.counts == [{("s", "signature_mismatch"): 2 * MAX_WAITING}]


# ── which ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "sampled"),
    [
        (Malformed, True),
        (Unauthentic, True),
        (Rejected, False),
        (Forbidden, False),
        (UnknownSource, False),
        (WrongMethod, False),
        (TooLarge, False),
        (WrongEncoding, False),
        (TooSlow, False),
        (NoKey, False),
    ],
)
async def test_what_may_have_been_a_delivery_is_sampled(kind: type[Rejected], sampled: bool) -> None:
    store = Written()
    refusals = RejectionSampler(store, SampleSettings(), Time())
    noted(refusals, [b"1"], kind("a_reason"))
    await refusals.flush()
    assert store.bodies == ([b"1"] if sampled else [])
    assert store.counts == [{("s", "a_reason"): 1}]


async def test_what_belongs_to_no_source_is_only_counted() -> None:
    store = Written()
    refusals = RejectionSampler(store, SampleSettings(), Time())
    refusals.note(WRONG, None, request())
    refusals.note(WRONG, endpoint(), None)
    await refusals.flush()
    assert store.sample == []
    assert store.counts == [{("", "signature_mismatch"): 1, ("s", "signature_mismatch"): 1}]


# ── less the secrets ─────────────────────────────────────────────────────────


async def sampled(provider: str, query: bytes, *headers: tuple[bytes, bytes]) -> RejectedRequest:
    store = Written()
    refusals = RejectionSampler(store, SampleSettings(), Time())
    refusals.note(WRONG, endpoint(provider), request(b"{}", query, *headers, path="/s" * 1000))
    await refusals.flush()
    [refusal] = store.sample
    return refusal


async def test_kept_as_it_came() -> None:
    found = await sampled("stripe", b"a=%2B&kind=x;&&b", (b"stripe-signature", b"t=1"), (b"x-tenant", b"\xe9"))
    assert (found.source, found.reason, found.method, found.remote) == ("s", WRONG.reason, "POST", "192.0.2.1")
    assert (found.path, found.query) == ("/s" * 512, b"a=%2B&kind=x;&&b")
    assert unpack_headers(found.headers) == [("stripe-signature", "t=1"), ("x-tenant", "é")]


@pytest.mark.parametrize(
    ("provider", "query", "left"),
    [
        ("azure_event_grid", b"code=s3cret", b""),
        ("azure_event_grid", b"%63ode=s3cret&a=1", b"a=1"),
        ("azure_event_grid", b"a=1&c%6Fd%65=s3cret&code=s3cret&b=", b"a=1&b="),
        ("azure_event_grid", b"a=%C3%BC+%2B", b"a=%C3%BC+%2B"),
        ("chargebee_key", b"kind=1&key=s3cret", b"kind=1"),
        ("cloudevents", b"access_token=s3cret&a=1", b"a=1"),
        ("meta", b"hub.mode=x&hub.verify_token=s3cret&hub.challenge=1", b"hub.mode=x&hub.challenge=1"),
        ("meta_whatsapp", b"hub%2Everify%5Ftoken=s3cret", b""),
    ],
)
async def test_no_secret_of_the_query(provider: str, query: bytes, left: bytes) -> None:
    assert (await sampled(provider, query)).query == left


@pytest.mark.parametrize("provider", ["azure_event_grid", "meta"])
async def test_a_query_that_cannot_be_read_is_not_kept(provider: str) -> None:
    """What cannot be searched for secrets may hold one."""
    assert (await sampled(provider, b"a=1&" * 1000 + b"code=s3cret&hub.verify_token=s3cret")).query == b""


async def test_no_secret_of_the_headers() -> None:
    for provider in ("stripe", "gitlab", "telegram"):
        headers = [b"authorization", b"proxy-authorization", b"cookie"]
        headers += sorted(endpoint(provider).contract.scheme.secret_headers)
        found = await sampled(provider, b"", (b"x-kept", b"1"), *((name, b"s3cret") for name in headers))
        assert unpack_headers(found.headers) == [("x-kept", "1")]


async def test_what_is_being_written_when_we_stop_is_written() -> None:
    class Slow:
        def __init__(self) -> None:
            self.written = 0

        async def add(self, sample: Any, counts: Any, *, most: int, most_bytes: int) -> None:
            await asyncio.sleep(0.05)
            self.written += sum(counts.values())

    store = Slow()
    refusals = RejectionSampler(store, SampleSettings(), lambda: 0.0)
    chore = asyncio.create_task(refusals.run(every=0.01))
    refusals.note(Unauthentic("signature_mismatch"), None, None)
    await asyncio.sleep(0.03)  # the writing has begun
    chore.cancel()
    refusals.note(Unauthentic("signature_mismatch"), None, None)
    await refusals.flush()
    assert store.written == 2


async def test_the_first_is_written_immediately_and_a_flood_rarely() -> None:
    """Whoever looks right after a refusal finds it, and strangers cause no more writes than before."""

    class Counting:
        def __init__(self) -> None:
            self.written: list[int] = []
            self.wrote = asyncio.Event()

        async def add(self, sample: Any, counts: Any, *, most: int, most_bytes: int) -> None:
            self.written.append(sum(counts.values()))
            self.wrote.set()

    store = Counting()
    refusals = RejectionSampler(store, SampleSettings(), lambda: 0.0)
    chore = asyncio.create_task(refusals.run(every=3600.0))
    await asyncio.sleep(0)
    refusals.note(Unauthentic("signature_mismatch"), None, None)
    async with asyncio.timeout(30):
        await store.wrote.wait()
    assert store.written == [1]
    for _ in range(1000):
        refusals.note(Unauthentic("signature_mismatch"), None, None)
        await asyncio.sleep(0)
    assert store.written == [1], "the next writing has its time"
    chore.cancel()
    await refusals.flush()
    assert store.written == [1, 1000]


SECRET_NAMES = (
    *(b"x-webhook-token", b"x-secret-token", b"token", b"x-authorization", b"job-token", b"deploy-token"),
    *(b"x-password", b"x-session-cookie", b"x-apikey", b"x-jwt-assertion", b"x-credential"),
)
MORE_PARAMETERS = "auth_token=a&hub.verify_token=b&jwt=c&accessToken=d&passphrase=e&api-key=f"


async def test_no_secret_is_kept_wherever_it_was_sent() -> None:
    """A sender that puts a secret in a wrong place, or that of another source, must not have it stored."""
    other = "whsec_bWFkZS11cC1mb3ItdGhlLXRlc3Rz"
    where = configure("s", find("stripe"), [SECRET])
    shop = configure("t", find("standard_webhooks"), [other])
    written = Written()
    refusals = RejectionSampler(written, SampleSettings(), Time(), secrets_of([where, shop]))
    sent = request(
        b"{}",
        f"page=2&private_token=glpat-made-up&code=made-up-code&{MORE_PARAMETERS}&x={SECRET}&shop={other}".encode(),
        (b"stripe-signature", SECRET.encode()),
        (b"x-webhook-secret", f"Secret {other}".encode()),
        (b"x-raw", shop.secrets[0].key),
        (b"private-token", b"glpat-made-up"),
        (b"x-access-token", b"made-up-access"),
        *((name, b"made-up-of-no-source") for name in SECRET_NAMES),
        (b"i-twilio-idempotency-token", b"made-up-id"),
        (b"user-agent", b"curl"),
    )
    refusals.note(WRONG, where, sent)
    await refusals.flush()
    [kept] = written.sample
    assert unpack_headers(kept.headers) == [("i-twilio-idempotency-token", "made-up-id"), ("user-agent", "curl")]
    assert kept.query == b"page=2"


async def test_no_secret_is_kept_as_a_name() -> None:
    shop = configure("t", find("standard_webhooks"), ["whsec_bWFkZS11cCtmb3ItdGhlLXRlc3Rz++8="])
    pages = configure("m", find("meta"), [SECRET], verify_token="made-up-Verify-Token")
    written = Written()
    refusals = RejectionSampler(written, SampleSettings(per_minute=100), Time(), secrets_of([shop, pages]))
    queries = [
        b"whsec_bWFkZS11cCtmb3ItdGhlLXRlc3Rz++8=&x=1",
        b"x=1&whsec_bWFkZS11cCtmb3ItdGhlLXRlc3Rz%2B%2B8=",
        b"y=whsec_bWFkZS11cCtmb3ItdGhlLXRlc3Rz++8=&x=1",
        b"made-up-Verify-Token&x=1",
        SECRET.encode() + b"&x=1",
    ]
    for query in queries:
        sent = request(
            b"{}",
            query,
            (b"whsec_bWFkZS11cCtmb3ItdGhlLXRlc3Rz++8=".lower(), b"1"),
            (b"x-made-up-verify-token", b"1"),
            (b"x-verify", b"made-up-Verify-Token"),
            (b"x-kept", b"1"),
        )
        refusals.note(WRONG, shop, sent)
    await refusals.flush()
    assert [kept.query for kept in written.sample] == [b"x=1"] * len(queries)
    assert [unpack_headers(kept.headers) for kept in written.sample] == [[("x-kept", "1")]] * len(queries)


async def test_a_query_without_secrets_is_kept_byte_for_byte() -> None:
    """It may be signed, and then it is judged again as it was."""
    written = Written()
    refusals = RejectionSampler(written, SampleSettings(), Time(), [SECRET.encode()])
    refusals.note(WRONG, endpoint(), request(b"{}", b"a=%7e&b=+&&c"))
    await refusals.flush()
    assert written.sample[0].query == b"a=%7e&b=+&&c"
