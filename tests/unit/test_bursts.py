"""What comes at once goes through the steps together, and each delivery still has its own fate."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hookledger.errors import BadData, Unavailable
from hookledger.model import Arrival, Recorded, Request
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.receive import http, respond
from hookledger.receive.app import Delivery, Intake
from hookledger.receive.budget import SMALL
from hookledger.receive.http import Listener
from hookledger.receive.record import Recorder
from hookledger.receive.rejections import RejectionSampler, SampleSettings
from hookledger.receive.request import Limits
from hookledger.receive.respond import Answer, Response
from hookledger.states import DeliveryOutcome
from tests.endpoints import configure
from tests.services.ports import free_port
from tests.unit.test_http import connected

SECRET = "whsec_made_up_for_the_tests"


class Store:
    """Records everything but what is called `refused`; nothing at all while it is down."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.down = False

    async def record_new(self, arrivals: Sequence[Arrival]) -> list[list[Recorded] | None]:
        return list(await self.record(arrivals))

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        if self.down:
            raise Unavailable("down")
        if any(arrival.items[0].key == "refused" for arrival in arrivals):
            raise BadData("refused")
        self.kept += [arrival.items[0].key for arrival in arrivals]
        return [[Recorded(DeliveryOutcome.ACCEPTED, arrival.event_ids[0])] for arrival in arrivals]

    async def add(self, *args: Any, **options: Any) -> None: ...


def intake(store: Store) -> Intake:
    endpoint = configure("stripe", find("stripe"), [SECRET], types=["invoice.paid"], other_types="reject")
    return Intake({endpoint.path: endpoint}, Recorder(store), RejectionSampler(store, SampleSettings(), time.time))


def request(ident: str, *, secret: str = SECRET, kind: str = "invoice.paid", ago: float = 0.0) -> Request:
    body = f'{{"id":"{ident}","type":"{kind}"}}'.encode()
    headers = sign(find("stripe"), secret, body, now=time.time() - ago)
    pairs = tuple((name.lower().encode(), value.encode()) for name, value in headers)
    return Request("POST", "/stripe", b"", pairs, body)


async def take(app: Intake, requests: Sequence[Request]) -> list[list[int]]:
    """The statuses that each one was answered."""
    told: list[list[int]] = [[] for _ in requests]

    def answer(place: int, response: Response) -> None:
        told[place].append(response.status)

    endpoint = app.endpoint("POST", "/stripe")
    app.take([Delivery(endpoint, one, partial(answer, place), 0.0) for place, one in enumerate(requests)])
    async with asyncio.timeout(60):
        while not all(told):
            await asyncio.sleep(0)
    await asyncio.sleep(0.01)  # a second answer would come now
    return told


async def test_neighbours_in_a_burst_do_not_touch_one_another() -> None:
    store = Store()
    odd = Request("POST", "/stripe", b"", ((b"stripe-signature", b"t=1"),), b"{}")
    requests = [
        request("one"),
        request("forged", secret="whsec_of_somebody_else"),
        request("two"),
        odd,
        request("refused"),
        request("old", ago=86_400),
        request("other", kind="customer.created"),
        Request("POST", "/stripe", b"", (), b""),
        request("three"),
    ]
    told = await take(intake(store), requests)
    assert told == [[202], [401], [202], [400], [503], [401], [422], [401], [202]]
    assert sorted(store.kept) == ["one", "three", "two"]


async def test_an_outage_is_told_to_each_of_a_burst() -> None:
    store = Store()
    store.down = True
    assert await take(intake(store), [request(f"evt_{n}") for n in range(70)]) == [[503]] * 70
    store.down = False
    assert await take(intake(store), [request(f"evt_{n}") for n in range(70)]) == [[202]] * 70
    assert sorted(store.kept) == sorted(f"evt_{n}" for n in range(70))


async def test_an_internal_error_with_one_leaves_the_others_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    store, app = Store(), None
    app = intake(store)
    prove = app._prove

    def broken(endpoint: Any, one: Request) -> Any:
        if b"broken" in one.body:
            raise RuntimeError("a defect")
        return prove(endpoint, one)

    monkeypatch.setattr(app, "_prove", broken)
    assert await take(app, [request("a"), request("broken"), request("b")]) == [[202], [503], [202]]
    assert store.kept == ["a", "b"]


class Site:
    """Answers when told, and breaks when told."""

    def __init__(self) -> None:
        self.bursts: list[int] = []
        self.answers: list[Answer] = []
        self.breaks = False

    def max_body(self, method: str, path: str) -> int:
        return 100

    def take(self, requests: Sequence[tuple[Request, Answer, float]]) -> None:
        self.bursts.append(len(requests))
        self.answers += [answer for _, answer, _ in requests]
        if self.breaks:
            raise RuntimeError("a defect, after some were taken on")

    def error_response(self, error: Exception) -> Response:
        return respond.unavailable()


async def test_a_burst_is_read_in_parts_and_each_request_gets_its_own_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "BURST", 4)
    site, port = Site(), free_port()
    listener = Listener(site, Limits())
    serving = asyncio.create_task(listener.serve("127.0.0.1", port))
    ends = [await connected(port) for _ in range(10)]
    post = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    site.breaks = True
    for _, writer in ends:
        writer.write(post)
    for reader, writer in ends:
        assert (await asyncio.wait_for(reader.readline(), 20)).split()[1] == b"503"
        writer.write(post)  # the sender tries again at once, on the same connection
    assert sum(site.bursts) == 10
    assert max(site.bursts) <= 4
    for answer in site.answers:  # what was taken on before the defect is answered after all
        answer(Response(202))
    for reader, writer in ends:
        rest = await asyncio.wait_for(reader.read(), 20)
        assert b"HTTP/1.1 202" not in rest, "an ack for a request that nobody recorded"
        writer.close()
    listener.stop()
    await asyncio.wait_for(serving, 60)


async def test_the_listener_survives_every_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BURST", 2)
    site, port = Site(), free_port()
    listener = Listener(site, Limits())
    serving = asyncio.create_task(listener.serve("127.0.0.1", port))

    def broken(*args: object) -> Response:
        raise RuntimeError("a defect")

    site.breaks = True
    post = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    with monkeypatch.context() as patch:
        patch.setattr(site, "error_response", broken)
        ends = [await connected(port) for _ in range(7)]
        for _, writer in ends:
            writer.write(post)
        for reader, writer in ends:
            try:
                said = await asyncio.wait_for(reader.read(), 20)
            except ConnectionResetError:
                said = b""
            assert said == b"", "closed without an answer: it will come again"
            writer.close()
    site.breaks = False
    site.answers.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post)
    async with asyncio.timeout(60):
        while not site.answers:
            await asyncio.sleep(0.01)
    site.answers[0](Response(202))
    assert (await asyncio.wait_for(reader.readline(), 20)).split()[1] == b"202"
    writer.close()
    listener.stop()
    await asyncio.wait_for(serving, 60)


async def test_large_bodies_are_taken_one_at_a_time_and_after_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Proving a large body may take a stranger's request tens of milliseconds: thirty of them are no burst."""
    now = 100.0
    monkeypatch.setattr("hookledger.receive.http.time.monotonic", lambda: now)
    order: list[str] = []
    rests: list[float] = []

    class Slow(Site):
        def take(self, requests: Sequence[tuple[Request, Answer, float]]) -> None:
            nonlocal now
            order.append("+".join(request.path for request, _, _ in requests))
            if len(requests[0][0].body) > SMALL:
                now += 0.08

    listener = Listener(Slow(), Limits())
    later = listener.loop.call_later

    def call_later(seconds: float, work: Any, *args: Any) -> asyncio.TimerHandle:
        rests.append(round(seconds, 3))
        return later(0, work, *args)

    monkeypatch.setattr(listener, "loop", SimpleNamespace(call_soon=listener.loop.call_soon, call_later=call_later))
    one: Any = SimpleNamespace(answer=lambda response: None)
    for name in ("large1", "large2", "large3"):
        listener.received(one, Request("POST", name, b"", (), b"x" * (SMALL + 1)))
    for name in ("small1", "small2"):
        listener.received(one, Request("POST", name, b"", (), b"x" * SMALL))
    async with asyncio.timeout(60):
        while len(order) < 4:
            await asyncio.sleep(0)
    assert order.index("small1+small2") <= 1
    assert [name for name in order if name.startswith("large")] == ["large1", "large2", "large3"]
    assert rests == [0.0, 0.08, 0.08], "as long as the last one took"
    listener.received(one, Request("POST", "large4", b"", (), b"x" * (SMALL + 1)))
    assert rests[-1] == 0.08, "the rest holds for one that comes later too"
