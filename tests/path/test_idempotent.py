"""Routes of an application's own, guarded by Idempotency-Key: one execution and one answer for each key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastapi import BackgroundTasks, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from msgspec.structs import replace
from starlette.middleware.base import BaseHTTPMiddleware

from hookledger import ConfigError, Event, Idempotent, Inbox, NotGuarded, Review, current_event
from hookledger.clock import Seconds
from hookledger.errors import WrongState
from hookledger.idempotency.key import HEADER, BadKey, read_key
from hookledger.operate.audit import by
from hookledger.operate.doctor.checks import examine
from hookledger.operate.quarantine.deliveries import accept, quarantined
from hookledger.operate.retention.erase import erase
from hookledger.operate.retention.prune import Pruner
from hookledger.operate.retention.settings import Limits, RetentionSettings
from hookledger.states import DeliveryOutcome, State
from hookledger.store.history import EventRow, History
from tests.asgi_client import Answer, ask
from tests.path.conftest import HeardLate

CREATE = "CREATE TABLE orders (item text, event text)"
KINDS = (DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT)
INSERT = "INSERT INTO orders (item, event) VALUES ($1, $2)"


def caller(scope: Any) -> str | None:
    given = dict(scope["headers"]).get(b"authorization", b"").decode()
    return given.removeprefix("Bearer ") or None


class Shop:
    """A partner API, its calls, and what its inbox has of them."""

    def __init__(self, url: str) -> None:
        self.inbox = Inbox(url)
        self.calls: list[str] = []
        self.app = FastAPI()
        self.guards: list[Idempotent] = []

    def guard(self, *routes: str, **options: Any) -> Idempotent:
        given: dict[str, Any] = {"caller": caller, "routes": routes or ("POST /orders",), **options}
        guard = self.inbox.idempotent("partner", **given)
        self.app.add_middleware(guard)
        self.guards.append(guard)
        return guard

    def route(self, path: str = "/orders") -> Callable[[Callable[[Event], Awaitable[Any]]], None]:
        def add(function: Callable[[Event], Awaitable[Any]]) -> None:
            @self.app.post(path)
            async def run(request: Request) -> Any:
                self.calls.append(request.headers["idempotency-key"])
                return await function(current_event(request))

        return add

    async def post(
        self, key: str | None = '"k-1"', body: Any = None, *, who: str = "acme", path: str = "/orders", **more: Any
    ) -> Answer:
        headers = [("Content-Type", "application/json"), *more.pop("headers", ())]
        if who:
            headers.append(("Authorization", f"Bearer {who}"))
        if key is not None:
            headers.append(("Idempotency-Key", key))
        raw = json.dumps({"item": "tea"} if body is None else body).encode()
        return await ask(self.app, "POST", path, raw, headers, **more)

    async def events(self) -> list[EventRow]:
        async with self.inbox.opened() as store:
            return list(await store.search.events())

    async def history(self) -> History:
        async with self.inbox.opened() as store:
            [event] = await store.search.events()
            found = await store.history(event.id)
            assert found is not None
            return found

    async def state(self) -> State:
        [event] = await self.events()
        return event.state

    async def orders(self) -> list[tuple[str, str]]:
        async with self.inbox.opened(handlers=1) as store:
            tx = store.transaction()
            rows = [(row[0], row[1]) for row in await tx.tx.fetch("SELECT item, event FROM orders")]
            await tx.rollback()
            return rows

    async def decide(self, name: str) -> None:
        async with self.inbox.opened() as store:
            [event] = await store.search.events()
            await getattr(store.reviews, name)(event.id, event.state, "ada", "looked", seen=event.claim)

    async def work(self) -> None:
        await self.inbox.work(drain=True)

    async def balanced(self) -> None:
        async with self.inbox.opened() as store:
            assert (await store.consistency.report()).imbalances == ()


@pytest.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    shop = Shop(database_url)
    async with shop.inbox.opened(handlers=1) as store:
        tx = store.transaction()
        await tx.tx.execute(CREATE)
        await tx.commit([])
    try:
        yield shop
    finally:
        for guard in shop.guards:
            await guard.stop()


async def insert(event: Event) -> dict[str, Any]:
    await event.tx.execute(INSERT, event.json["item"], str(event.id))
    return {"id": str(event.id), "item": event.json["item"]}


# ── the first request and its repetitions ──


async def test_a_repetition_gets_the_stored_answer_and_runs_nothing(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    first, second = await shop.post(), await shop.post()
    assert (first.status, second.status) == (200, 200)
    assert first.body == second.body
    assert second.headers == first.headers
    assert len(shop.calls) == 1
    assert [order[0] for order in await shop.orders()] == ["tea"]
    [event] = await shop.events()
    assert (event.source, event.type, event.key, event.state) == (
        "partner",
        "POST /orders",
        "acme:k-1",
        State.PROCESSED,
    )
    assert event.deliveries == 2
    await shop.balanced()


async def test_the_same_key_with_another_body_is_422(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    await shop.post()
    other = await shop.post(body={"item": "coffee"})
    assert (other.status, other.headers["content-type"]) == (422, "application/problem+json")
    assert other.json["type"] == "urn:hookledger:idempotency:key-reused"
    assert len(shop.calls) == 1
    assert (await shop.post()).status == 200


async def test_concurrent_repetitions_get_409_and_the_route_runs_once(shop: Shop) -> None:
    shop.guard()
    began, go = asyncio.Event(), asyncio.Event()

    @shop.route()
    async def slow(event: Event) -> Any:
        began.set()
        await go.wait()
        return await insert(event)

    first = asyncio.create_task(shop.post())
    await began.wait()
    others = await asyncio.gather(*(shop.post() for _ in range(5)))
    assert {(other.status, other.headers["retry-after"]) for other in others} == {(409, "1")}
    go.set()
    assert (await first).status == 200
    assert (await shop.post()).body == (await first).body
    assert len(shop.calls) == 1


async def test_with_wait_concurrent_repetitions_get_the_first_answer(shop: Shop) -> None:
    shop.guard(wait="30s", waiting=3)
    began, go = asyncio.Event(), asyncio.Event()

    @shop.route()
    async def slow(event: Event) -> Any:
        began.set()
        await go.wait()
        return await insert(event)

    first = asyncio.create_task(shop.post())
    await began.wait()
    others = [asyncio.create_task(shop.post()) for _ in range(4)]
    done, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result().status for task in done] == [429]
    go.set()
    answers = [await task for task in others if task not in done]
    assert {(answer.status, answer.body) for answer in answers} == {(200, (await first).body)}
    assert len(shop.calls) == 1


# ── who asks ──


async def test_two_callers_with_one_key_have_an_answer_each(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    acme, other = await shop.post(who="acme"), await shop.post(who="globex")
    assert acme.json["id"] != other.json["id"]
    assert (await shop.post(who="globex")).body == other.body
    assert len(shop.calls) == 2


async def test_crafted_callers_keys_and_routes_that_concatenate_alike_differ(shop: Shop) -> None:
    shop.guard("POST /orders", "POST /orders/{name}")
    shop.route()(insert)
    shop.route("/orders/{name}")(insert)
    asked = [("a", "b:c", "/orders"), ("a:b", "c", "/orders"), ("a:b:c", "x", "/orders"), ("a", "b:c:x", "/orders")]
    asked += [("a", "b:c", "/orders/1"), ("a:bPOST /orders", "c", "/orders")]
    ids = {(await shop.post(f'"{key}"', who=who, path=path)).json["id"] for who, key, path in asked}
    assert len(ids) == len(asked)


async def test_the_same_key_on_another_path_of_a_route_is_422(shop: Shop) -> None:
    shop.guard("POST /orders/{name}")
    shop.route("/orders/{name}")(insert)
    assert (await shop.post(path="/orders/1")).status == 200
    assert (await shop.post(path="/orders/2")).status == 422
    assert (await shop.post(path="/orders/1", query=b"x=1")).status == 422


async def test_a_key_stays_used_when_a_variable_part_of_its_route_is_renamed(shop: Shop) -> None:
    shop.guard("POST /orders/{id}", "POST /files/{all:path}")
    shop.route("/orders/{id}")(insert)
    shop.route("/files/{all:path}")(insert)
    paths = ("/orders/1", "/files/a/b")
    first = [(await shop.post(f"k{path}", path=path)).body for path in paths]
    renamed = Inbox(shop.inbox.database).idempotent(
        "partner", caller=caller, routes=["POST /orders/{order}", "POST /files/{rest:path}"]
    )
    shop.app = FastAPI()
    shop.app.add_middleware(renamed)
    shop.guards.append(renamed)
    assert [(await shop.post(f"k{path}", path=path)).body for path in paths] == first


async def test_without_authentication_nothing_is_read_or_stored(shop: Shop) -> None:
    shop.guard()

    @shop.app.post("/orders")
    async def run(request: Request) -> Any:
        if caller(request.scope) is None:
            raise HTTPException(401)
        return await insert(current_event(request))

    assert (await shop.post(who="")).status == 401
    assert await shop.events() == []
    assert (await shop.post()).status == 200
    assert (await shop.post(who="")).status == 401
    [event] = await shop.events()
    assert event.deliveries == 1


async def test_a_route_that_is_not_guarded_has_no_event(shop: Shop) -> None:
    shop.guard()

    @shop.app.post("/others")
    async def run(request: Request) -> Any:
        with pytest.raises(NotGuarded, match="POST /others has no event"):
            current_event(request)
        return {}

    assert (await shop.post(path="/others")).status == 200
    assert await shop.events() == []


async def test_secrets_are_not_stored(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    secret = [("Cookie", "sid=made-up-7"), ("X-Api-Key", "made-up-7"), ("X-Acme-Token", "made-up-7")]
    kept = [("X-Request-Id", "r-1")]
    assert (await shop.post(headers=[*secret, *kept], query=b"api_key=made-up-7&page=2")).status == 200
    request = (await shop.history()).request
    assert request is not None
    assert b"made-up-7" not in request.headers + request.query
    assert b"acme" not in request.headers
    assert b"x-request-id: r-1" in request.headers
    assert request.query == b"page=2"


# ── the key ──


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('"k-1"', "k-1"),
        ("k-1", "k-1"),
        ('  "a b"\t', "a b"),
        (r'"a\"b\\c"', r'a"b\c'),
        ('"' + "x" * 255 + '"', "x" * 255),
    ],
)
def test_a_key_is_read(given: str, key: str) -> None:
    assert read_key(((HEADER, given.encode()),)) == key


@pytest.mark.parametrize(
    "given",
    [
        *("", '""', '"', '"a', 'a"b', '"a" "b"', '"a", "b"', "a,b", "a;p=1", "a b", '"\\a"', "a\x00b"),
        *("\x7f", "\xe9", '"\xe9"', '"' + "x" * 256 + '"', "x" * 256),
    ],
)
async def test_a_malformed_key_is_400(given: str) -> None:
    with pytest.raises(BadKey):
        read_key(((HEADER, given.encode("latin-1")),))


async def test_a_key_is_sent_once() -> None:
    with pytest.raises(BadKey, match="more than once"):
        read_key(((HEADER, b"a"), (HEADER, b"a")))


async def test_a_missing_key_is_400_or_passed_on_by_rule(shop: Shop) -> None:
    guard = shop.guard()

    @shop.app.post("/orders")
    async def run(request: Request) -> Any:
        return {"guarded": "hookledger.event" in request.scope}

    missing = await shop.post(None)
    assert (missing.status, missing.json["type"]) == (400, "urn:hookledger:idempotency:key-missing")
    assert (await shop.post("a,b")).json["type"] == "urn:hookledger:idempotency:key-malformed"
    guard.settings = replace(guard.settings, required=False)
    assert (await shop.post(None)).json == {"guarded": False}
    assert await shop.events() == []


async def test_a_body_over_the_limit_is_413(shop: Shop) -> None:
    shop.guard(max_body=64)
    shop.route()(insert)
    assert (await shop.post(body={"item": "x" * 64})).status == 413
    parts = [b"x" * 40, b"x" * 40]
    headers = [("Authorization", "Bearer acme"), ("Idempotency-Key", "k")]
    assert (await ask(shop.app, "POST", "/orders", parts, headers)).status == 413
    assert await shop.events() == []


# ── what a route answers ──


async def test_a_5xx_is_rolled_back_and_the_next_request_runs_again(shop: Shop) -> None:
    shop.guard()
    fails = [True]

    @shop.route()
    async def run(event: Event) -> Any:
        await insert(event)
        if fails:
            fails.pop()
            return JSONResponse({"error": "later"}, 503)
        return {"attempt": "second"}

    assert (await shop.post()).status == 503
    assert await shop.orders() == []
    assert await shop.state() is State.RETRYING
    assert (await shop.post()).json == {"attempt": "second"}
    assert len(await shop.orders()) == 1
    assert (await shop.post()).json == {"attempt": "second"}
    assert len(shop.calls) == 2
    await shop.balanced()


async def test_an_exception_in_the_transaction_is_the_applications_and_runs_again(shop: Shop) -> None:
    shop.guard()
    fails = [True]

    @shop.route()
    async def run(event: Event) -> Any:
        await insert(event)
        if fails:
            fails.pop()
            raise ZeroDivisionError("made up")
        return {}

    with pytest.raises(ZeroDivisionError):  # as FastAPI's own error handling raises it, after a 500
        await shop.post()
    assert await shop.orders() == []
    assert (await shop.post()).status == 200
    assert len(await shop.orders()) == 1


async def test_an_exception_without_the_transaction_is_unknown_and_not_repeated(shop: Shop) -> None:
    shop.guard()
    written: list[str] = []

    @shop.route()
    async def run(event: Event) -> Any:
        written.append(event.key)
        raise ConnectionResetError("made up")

    with pytest.raises(ConnectionResetError):
        await shop.post()
    assert await shop.state() is State.NEEDS_REVIEW
    again = await shop.post()
    assert (again.status, again.json["type"]) == (409, "urn:hookledger:idempotency:unknown-outcome")
    assert len(written) == 1


async def test_repeat_safe_runs_again_after_an_exception(shop: Shop) -> None:
    shop.guard(repeat="safe")
    fails = [True]

    @shop.route()
    async def run(event: Event) -> Any:
        if fails:
            fails.pop()
            raise ConnectionResetError("made up")
        return {}

    with pytest.raises(ConnectionResetError):
        await shop.post()
    assert (await shop.post()).status == 200


async def test_a_4xx_is_not_stored_unless_the_rule_says_so(shop: Shop) -> None:
    guard = shop.guard()

    @shop.route()
    async def run(event: Event) -> Any:
        await insert(event)
        return JSONResponse({"error": "no"}, 422)

    assert [(await shop.post()).status for _ in range(2)] == [422, 422]
    assert len(shop.calls) == 2
    assert await shop.orders() == []
    guard.settings = replace(guard.settings, store_4xx=True)
    await guard.stop()
    assert [(await shop.post()).json for _ in range(2)] == [{"error": "no"}] * 2
    assert len(shop.calls) == 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: StreamingResponse(iter(["a", "b"])), "streamed without a content length"),
        (lambda: PlainTextResponse("x" * 300_000), "over 262144 bytes"),
        (lambda: RedirectResponse("/elsewhere", 303), "a redirect"),
        (lambda: PlainTextResponse("x", headers={"x-a": "b\r\nset-cookie: c=d"}), "has a line break"),
    ],
    ids=["stream", "large", "redirect", "header"],
)
async def test_an_answer_that_cannot_be_stored_is_refused_and_rolled_back(
    shop: Shop, answer: Callable[[], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.guard()

    @shop.route()
    async def run(event: Event) -> Any:
        await insert(event)
        return answer()

    refused = await shop.post()
    assert (refused.status, refused.json["type"]) == (500, "urn:hookledger:idempotency:answer-not-storable")
    assert why in refused.json["detail"]
    assert why in caplog.text
    assert await shop.orders() == []


async def test_an_answer_that_cannot_be_stored_is_unknown_if_the_route_may_have_written_elsewhere(
    shop: Shop,
) -> None:
    shop.guard()

    @shop.route()
    async def run(event: Event) -> Any:
        return RedirectResponse("/elsewhere", 303)

    refused = await shop.post()
    assert (refused.status, refused.json["type"]) == (500, "urn:hookledger:idempotency:answer-not-storable")
    assert "It is unknown what the route wrote elsewhere" in refused.json["detail"]
    assert await shop.state() is State.NEEDS_REVIEW
    assert (await shop.post()).json["type"] == "urn:hookledger:idempotency:unknown-outcome"
    assert len(shop.calls) == 1


async def test_a_response_in_parts_with_its_length_is_stored_whole(shop: Shop) -> None:
    class Passes(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Any:
            return await call_next(request)

    shop.app.add_middleware(Passes)
    shop.guard()
    shop.route()(insert)
    assert (await shop.post()).body == (await shop.post()).body
    assert len(shop.calls) == 1


async def test_cookies_are_the_first_clients_alone(shop: Shop) -> None:
    shop.guard()

    @shop.route()
    async def run(event: Event) -> Any:
        response = JSONResponse({"id": 1}, 201, headers={"location": "/orders/1", "date": "Thu, 01 Jan 1970"})
        response.set_cookie("sid", "made-up-7")
        return response

    first, second = await shop.post(), await shop.post()
    assert "made-up-7" in first.headers["set-cookie"]
    assert "set-cookie" not in second.headers
    assert "date" not in second.headers
    assert (second.status, second.headers["location"], second.headers["content-length"]) == (201, "/orders/1", "8")


async def test_background_tasks_follow_the_commit(shop: Shop) -> None:
    shop.guard()
    seen: asyncio.Future[State] = asyncio.get_running_loop().create_future()

    async def look() -> None:
        seen.set_result(await shop.state())

    @shop.app.post("/orders")
    async def run(request: Request, tasks: BackgroundTasks) -> Any:
        tasks.add_task(look)
        return await insert(current_event(request))

    assert (await shop.post()).status == 200
    assert await seen is State.PROCESSED


async def test_the_route_finishes_when_its_client_leaves(shop: Shop) -> None:
    shop.guard()
    began, go = asyncio.Event(), asyncio.Event()

    @shop.route()
    async def slow(event: Event) -> Any:
        began.set()
        await go.wait()
        return await insert(event)

    first = asyncio.create_task(shop.post())
    await began.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    while await shop.state() is State.PROCESSING:
        await asyncio.sleep(0.01)
    assert (await shop.post()).json["item"] == "tea"
    assert len(shop.calls) == 1


async def test_an_answer_that_is_just_committed_is_sent_although_the_loop_was_blocked(
    shop: Shop, heard_late: HeardLate
) -> None:
    """The heartbeat finds the event processed, and gives up its claim before the loop can hear of the commit."""
    running, (committed, given_up) = asyncio.Event(), heard_late
    shop.guard("POST /quick", "POST /blocks", lease="2s")

    @shop.route("/quick")
    async def quick(event: Event) -> str:
        await running.wait()
        return "quick"

    @shop.route("/blocks")
    async def blocks(event: Event) -> str:
        running.set()
        await committed.wait()
        assert given_up.wait(30)
        return "blocked"

    sending = asyncio.create_task(shop.post(path="/quick"))
    assert (await shop.post(path="/blocks")).status == 200
    response = await sending
    assert (response.status, response.json) == (200, "quick")


async def test_a_route_beyond_its_timeout_is_unknown(shop: Shop) -> None:
    shop.guard(timeout="100ms")

    @shop.route()
    async def slow(event: Event) -> Any:
        await asyncio.sleep(60)

    assert (await shop.post()).json["type"] == "urn:hookledger:idempotency:unknown-outcome"
    assert await shop.state() is State.NEEDS_REVIEW


async def test_an_applications_own_timeout_is_its_own_error(shop: Shop) -> None:
    shop.guard(repeat="safe")

    @shop.route()
    async def run(event: Event) -> Any:
        raise TimeoutError("the bank")

    with pytest.raises(TimeoutError, match="the bank"):
        await shop.post()


async def test_a_stop_lets_the_route_finish(shop: Shop) -> None:
    guard = shop.guard()
    began, go = asyncio.Event(), asyncio.Event()

    @shop.route()
    async def slow(event: Event) -> Any:
        began.set()
        await go.wait()
        return await insert(event)

    first = asyncio.create_task(shop.post())
    await began.wait()
    stop = asyncio.create_task(guard.stop())
    await asyncio.sleep(0)
    go.set()
    await stop
    assert (await first).status == 200
    assert await shop.state() is State.PROCESSED


async def test_a_server_opens_and_closes_the_ledger_with_the_application(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def workers() -> list[tuple[bool, Any]]:
        async with shop.inbox.opened() as store:
            found = await store.workers()
            return [(worker.left, [(one.source, one.type) for one in worker.handles]) for worker in found]

    async def receive() -> Any:
        if sent:
            assert await workers() == [(False, [("partner", "POST /orders")])]
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await shop.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert await workers() == [(True, [("partner", "POST /orders")])]


# ── what an operator decides ──


async def fail_elsewhere(shop: Shop) -> None:
    @shop.route()
    async def run(event: Event) -> Any:
        if not event.approved:
            raise ConnectionResetError("made up")
        return {"approved": event.approved.by}

    with pytest.raises(ConnectionResetError):
        await shop.post()


async def test_after_approve_the_next_request_runs_the_route_once(shop: Shop) -> None:
    shop.guard()
    await fail_elsewhere(shop)
    await shop.decide("approve")
    assert [(await shop.post()).json for _ in range(2)] == [{"approved": "ada"}] * 2
    assert len(shop.calls) == 2


async def test_a_worker_leaves_an_approved_request_to_the_application(shop: Shop) -> None:
    shop.guard()
    await fail_elsewhere(shop)
    await shop.decide("approve")
    await shop.work()
    assert await shop.state() is State.RETRYING
    assert (await shop.post()).json == {"approved": "ada"}
    await shop.balanced()


async def test_after_settle_a_repetition_is_told_so(shop: Shop) -> None:
    shop.guard()
    await fail_elsewhere(shop)
    await shop.decide("settle")
    told = await shop.post()
    assert (told.status, told.json["type"]) == (409, "urn:hookledger:idempotency:settled")


async def test_after_reject_the_key_is_closed(shop: Shop) -> None:
    shop.guard()
    await fail_elsewhere(shop)
    await shop.decide("reject")
    told = await shop.post()
    assert (told.status, told.json["type"]) == (409, "urn:hookledger:idempotency:closed")
    assert len(shop.calls) == 1


async def test_an_expired_answer_is_not_made_again(shop: Shop) -> None:
    shop.guard(keep="1h")
    shop.route()(insert)
    assert (await shop.post()).status == 200
    shop.inbox.clock.offset += 3700
    told = await shop.post()
    assert (told.status, told.json["type"]) == (409, "urn:hookledger:idempotency:answer-expired")
    assert len(shop.calls) == 1


async def test_a_replay_that_ran_nothing_does_not_offer_a_new_key(shop: Shop) -> None:
    """The first run was carried out: a new key would carry it out twice."""
    shop.guard(keep="1h")
    shop.route()(insert)
    await shop.post()
    async with shop.inbox.opened() as store:
        [event] = await store.search.events()
        await store.replay(event.id, event.state, "ada", "again", seen=event.claim)
    shop.inbox.clock.offset += 3700
    await shop.work()
    assert await shop.state() is State.SKIPPED
    assert (await shop.post()).json["type"] == "urn:hookledger:idempotency:answer-expired"
    assert len(shop.calls) == 1


async def test_while_its_source_is_paused_known_requests_get_their_answers_and_new_ones_503(shop: Shop) -> None:
    shop.guard(repeat="transaction")
    shop.route()(insert)
    first = await shop.post()
    async with shop.inbox.opened() as store:
        await store.pauses.pause("partner", "*", "ada", "the bank is away")
    assert (await shop.post()).body == first.body
    assert [(await shop.post("k-2")).status for _ in range(2)] == [503, 503]
    assert len(shop.calls) == 1
    async with shop.inbox.opened() as store:
        await store.pauses.resume("partner", "*", "ada", "it is back")
    assert (await shop.post("k-2")).status == 200
    assert len(shop.calls) == 2
    await shop.balanced()


async def test_a_route_may_ask_for_a_review_itself(shop: Shop) -> None:
    shop.guard()

    @shop.route()
    async def run(event: Event) -> Any:
        await insert(event)
        raise Review("too much money")

    assert (await shop.post()).json["type"] == "urn:hookledger:idempotency:unknown-outcome"
    [event] = await shop.events()
    assert (event.state, event.reason) == (State.NEEDS_REVIEW, "too much money")
    assert await shop.orders() == []


async def test_a_worker_skips_what_was_rolled_back_and_never_asked_again(shop: Shop) -> None:
    shop.guard(keep="1h")

    @shop.route()
    async def run(event: Event) -> Any:
        return JSONResponse({}, 422)

    await shop.post()
    shop.inbox.clock.offset += 3700
    await shop.work()
    assert await shop.state() is State.SKIPPED
    assert (await shop.post()).json["type"] == "urn:hookledger:idempotency:closed"


# ── declaring ──


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"routes": []}, "no route is named"),
        ({"routes": "POST /orders"}, "routes is a list"),
        ({"routes": ["GET /orders"]}, "is not a route"),
        ({"routes": ["POST orders"]}, "is not a route"),
        ({"routes": ["POST /orders/*"]}, "is not a route"),
        ({"routes": ["POST /orders/{id:int}"]}, "for {id:int} write {id}"),
        ({"routes": {"POST /orders": "sometimes"}}, "repeat is one of"),
        ({"caller": lambda: None}, "caller"),
        ({"name": "part/ner"}, "is not a source name"),
        ({"kepp": "1h"}, "no option 'kepp'"),
        ({"keep": 0}, "greater than 0"),
        ({"concurrency": 0}, "greater than 0"),
        ({"queue": 0}, "greater than 0"),
    ],
)
def test_a_mistake_is_reported_where_it_is_written(options: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"name": "partner", "caller": caller, "routes": ["POST /orders"], **options}
    with pytest.raises(ConfigError, match=why):
        Inbox("sqlite:///inbox.db").idempotent(given.pop("name"), **given)


async def test_a_receiver_serves_no_guarded_source(shop: Shop) -> None:
    shop.guard()
    try:
        assert (await ask(shop.inbox.asgi, "POST", "/partner", b"{}")).status == 404
    finally:
        await shop.inbox.asgi.stop()


# ── what operators see ──


async def test_an_erased_request_forgets_its_body_and_answer_and_its_key_stays_used(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    assert (await shop.post()).status == 200
    async with shop.inbox.opened() as store:
        context = shop.inbox.context(store)
        [event] = await store.search.events()
        await erase(context, by("ada", "asked for"), event)
        assert await store.answers.of_event(event.id) is None
        found = await store.history(event.id)
        assert found is not None
        assert found.request is not None
        assert found.request.body == b""
    told = await shop.post()
    assert (told.status, told.json["type"]) == (409, "urn:hookledger:idempotency:answer-expired")
    assert len(shop.calls) == 1


async def test_a_pruned_request_is_not_run_again(shop: Shop) -> None:
    """Retention may be shorter than answers are kept: the answer keeps its event, and the key outlives both."""
    shop.guard(keep="3d")
    shop.route()(insert)
    first = await shop.post()
    settings, limits = RetentionSettings(batch_delay=Seconds(0)), Limits(events=86400.0)
    for days, left in ((2, 1), (4, 0)):
        shop.inbox.clock.offset += days * 86400
        async with shop.inbox.opened() as store:
            await Pruner(store, settings, {}, limits, shop.inbox.clock, "worker").round(from_start=True)
        assert len(await shop.events()) == left
        told = await shop.post()
        assert told.body == first.body if left else told.json["type"] == "urn:hookledger:idempotency:answer-expired"
    assert len(shop.calls) == 1
    await shop.balanced()


async def test_doctor_has_nothing_against_a_guarded_source(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    await shop.post()
    await shop.post(body={"item": "coffee"})
    assert shop.inbox.advice() == []
    async with shop.inbox.opened() as store:
        findings = await examine(shop.inbox.context(store))
    assert [(one.level, one.says) for one in findings if one.about == "source partner"] == [
        ("ok", "guards routes of your application by Idempotency-Key; keys kept forever")
    ]
    assert [one.level for one in findings if one.about == "quarantine"] == ["ok"]


async def test_what_was_sent_under_a_used_key_cannot_be_accepted_as_an_event(shop: Shop) -> None:
    shop.guard()
    shop.route()(insert)
    await shop.post()
    assert (await shop.post(body={"item": "coffee"})).status == 422
    async with shop.inbox.opened() as store:
        context = shop.inbox.context(store)
        [odd] = await quarantined(context)
        with pytest.raises(WrongState, match="nothing can be accepted of it"):
            await accept(context, by("ada", "why not"), odd.delivery)


async def test_requests_are_counted_and_logged(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "hookledger.events")
    guard = shop.guard()
    shop.route()(insert)
    await shop.post()
    await shop.post()
    await shop.post(body={"item": "coffee"})
    counts = guard.endpoint.counts
    assert (counts.answers["run"], counts.answers["stored"], counts.answers["refused"]) == (1, 1, 1)
    assert counts.lookups == {"hit": 1, "miss": 0}
    assert [counts.outcomes[outcome] for outcome in KINDS] == [1, 1, 1]
    said = [record.getMessage() for record in caplog.records]
    assert [said.count(f"delivery {word}") for word in ("accepted", "duplicate", "quarantined")] == [1, 1, 1], said
