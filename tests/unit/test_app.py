"""The intake's one short function, at its edges."""

import asyncio
import time
from typing import Any

from hookledger.clock import Seconds
from hookledger.model import Recorded
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.receive.app import Intake
from hookledger.receive.budget import MIN_AGE
from hookledger.receive.record import Recorder
from hookledger.receive.rejections import RejectionSampler, SampleSettings
from hookledger.receive.request import Limits
from tests.endpoints import configure

SECRET = "whsec_made_up_for_the_tests"
BODY = b'{"id":"evt_1","type":"invoice.paid"}'


class NoStore:
    async def record_new(self, arrivals: Any) -> Any:
        raise AssertionError("nothing may be recorded here")

    async def record(self, arrivals: Any) -> list[list[Recorded]]:
        raise AssertionError("nothing may be recorded here")

    async def add(self, sample: Any, counts: Any, *, most: int, most_bytes: int) -> None:
        raise AssertionError("nobody flushes here")


def intake(**options: Any) -> Intake:
    endpoint = configure("stripe", find("stripe"), [SECRET])
    refusals = options.pop("refusals", None) or RejectionSampler(NoStore(), SampleSettings(), time.time)
    return Intake({endpoint.path: endpoint}, Recorder(NoStore()), refusals, **options)


async def post(app: Intake, headers: list[tuple[str, str]], *messages: dict[str, Any]) -> tuple[int, int]:
    """The status, and how many messages were read."""
    waiting, sent = list(messages), []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/stripe", "query_string": b""}
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await app({**scope, "headers": pairs}, receive, send)
    return sent[0]["status"], len(messages) - len(waiting)


def whole(body: bytes = BODY) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": False}


async def test_a_stale_time_is_not_believed_while_the_clocks_differ() -> None:
    """The provider must not give up because of our host's clock."""
    stale = sign(find("stripe"), SECRET, BODY, now=time.time() - 3600)
    assert await post(intake(), stale, whole()) == (401, 1)
    assert await post(intake(skew=lambda: 3600.0), stale, whole()) == (503, 1)
    forged = sign(find("stripe"), "whsec_another_one", BODY, now=time.time() - 3600)
    assert await post(intake(skew=lambda: 3600.0), forged, whole()) == (401, 1)


async def test_a_body_announced_too_large_is_never_read() -> None:
    assert await post(intake(), [("content-length", "2000000")], whole()) == (413, 0)


async def test_a_body_that_is_too_large_is_read_no_further() -> None:
    part = {"type": "http.request", "body": b"x" * 600_000, "more_body": True}
    assert await post(intake(), [], part, part, part, part) == (413, 2)


async def test_a_body_that_never_begins_is_given_up() -> None:
    app = intake(limits=Limits(seconds=Seconds("50ms")))
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/stripe", "query_string": b"", "headers": []}
    await asyncio.wait_for(app(scope, receive, send), 30)
    assert sent[0]["status"] == 408


async def test_rejections_are_counted_by_reason() -> None:
    refusals = RejectionSampler(NoStore(), SampleSettings(), time.time)
    app = intake(refusals=refusals)
    await post(app, [], whole())
    await post(app, [], whole())
    await post(app, [("content-length", "2000000")], whole())
    assert refusals.reasons == {"signature_missing": 2, "body_too_large": 1}


async def test_uploads_over_asgi_share_one_budget() -> None:
    """The slowest gets 503, what is whole counts until its answer, and nothing stays counted."""
    app = intake(limits=Limits(body_bytes=400_000))
    parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/stripe", "query_string": b"", "headers": []}
    slow = asyncio.create_task(app(scope, parts.get, send))
    await parts.put({"type": "http.request", "body": b"x" * 150_000, "more_body": True})
    await asyncio.sleep(0.01)
    assert app._reader.budget.held == 150_000
    assert await post(app, [], whole(b"x" * 100_000)) == (503, 1)  # of two young ones the larger goes on
    assert app._reader.budget.held == 150_000
    await asyncio.sleep(MIN_AGE)
    assert await post(app, [], whole(b"x" * 100_000)) == (401, 1)
    await asyncio.wait_for(slow, 60)
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"5") in sent[0]["headers"]
    assert app._reader.budget.held == 0
