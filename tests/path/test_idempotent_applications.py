"""Guarded applications as servers and frameworks run them: several guards, failures after the answer, event loops."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, Request

from hookledger import ConfigError, Event, Inbox, SyncEvent, current_event
from hookledger.cli.keys import _words
from hookledger.errors import Unavailable
from hookledger.idempotency.events import Guarded, arrival
from hookledger.idempotency.guard import _request
from hookledger.operate.keys.audit import audit_keys
from hookledger.states import State
from hookledger.store.ops.workers import Expired
from tests.asgi_client import ask
from tests.path.test_idempotent import INSERT, Shop, caller, insert, shop
from tests.services.postgres import Postgres

__all__ = ["shop"]


async def given(request: Request) -> Any:
    return current_event(request)


def statements(request: Request) -> Any:
    return current_event(request).tx


Given = Annotated[Any, Depends(given)]
Statements = Annotated[Any, Depends(statements)]
HEADERS = [("Authorization", "Bearer acme"), ("Idempotency-Key", "k-1")]


async def test_two_guards_of_one_application_each_give_their_routes_their_event(shop: Shop) -> None:
    shop.guard()
    second = shop.inbox.idempotent("refunds", caller=caller, routes=["POST /refunds"])
    shop.app.add_middleware(second)
    shop.guards.append(second)
    shop.route()(insert)
    shop.route("/refunds")(insert)
    answers = [await shop.post(path=path) for path in ("/orders", "/refunds")]
    assert [answer.status for answer in answers] == [200, 200]
    assert {event.source for event in await shop.events()} == {"partner", "refunds"}


async def test_a_request_that_two_guards_take_is_a_mistake_and_runs_nothing(shop: Shop) -> None:
    shop.guard()
    second = shop.inbox.idempotent("others", caller=caller, routes=["POST /{what}"])
    shop.app.add_middleware(second)
    shop.guards.append(second)
    shop.route()(insert)
    with pytest.raises(ConfigError, match="POST /orders is guarded twice, by 'others' and by 'partner'"):
        await shop.post()
    assert (shop.calls, await shop.orders()) == ([], [])
    assert {event.source for event in await shop.events()} == {"others"}


async def test_two_guards_of_a_route_may_each_know_other_callers(shop: Shop) -> None:
    def staff(scope: Any) -> str | None:
        return dict(scope["headers"]).get(b"x-staff", b"").decode() or None

    shop.guard()
    second = shop.inbox.idempotent("staff", caller=staff, routes=["POST /orders"])
    shop.app.add_middleware(second)
    shop.guards.append(second)
    shop.route()(insert)
    assert (await shop.post()).status == 200
    assert (await shop.post(who="", headers=[("X-Staff", "ada")])).status == 200
    assert {event.source for event in await shop.events()} == {"partner", "staff"}


@pytest.mark.parametrize(("method", "path"), [("POST", "/orders\n"), ("post", "/orders")])
async def test_a_request_that_a_router_takes_for_the_route_is_guarded(shop: Shop, method: str, path: str) -> None:
    guard = shop.inbox.idempotent("partner", caller=caller, routes=["POST /orders"])

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert current_event(scope).type == "POST /orders"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    assert (await ask(guard(application), method, path, b"{}", HEADERS)).body == b"done"
    await guard.stop()


async def test_a_background_task_that_fails_is_logged(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    guard = shop.guard()

    def fail() -> None:
        raise ZeroDivisionError("made up")

    @shop.app.post("/orders")
    async def run(request: Request, tasks: BackgroundTasks) -> Any:
        tasks.add_task(fail)
        return await insert(current_event(request))

    assert (await shop.post()).status == 200
    await guard.stop()
    assert "ZeroDivisionError: made up" in caplog.text


async def test_an_exception_that_the_application_answers_itself_is_logged(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    guard = shop.inbox.idempotent("partner", caller=caller, routes=["POST /orders"])

    @shop.route()
    async def run(event: Event) -> Any:
        await insert(event)
        raise ZeroDivisionError("made up")

    assert (await ask(guard(shop.app), "POST", "/orders", b'{"item": "tea"}', HEADERS)).status == 500
    await guard.stop()
    assert "ZeroDivisionError: made up" in caplog.text
    assert await shop.orders() == []


async def test_background_tasks_of_a_route_that_was_rolled_back_do_not_run(shop: Shop) -> None:
    guard = shop.guard()
    ran: list[str] = []

    @shop.app.post("/orders")
    async def run(request: Request, tasks: BackgroundTasks) -> Any:
        event: Event = current_event(request)
        tasks.add_task(ran.append, event.key)
        _ = event.once("mail", "1")  # not awaited: the attempt fails after the response
        return await insert(event)

    assert (await shop.post()).status == 503
    await guard.stop()
    assert ran == []
    assert await shop.orders() == []


async def test_headers_that_can_be_read_only_once_are_sent_and_stored(shop: Shop) -> None:
    guard = shop.inbox.idempotent("partner", caller=caller, routes=["POST /orders"])

    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = (pair for pair in [(b"X-Order", b"17")])
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"done"})

    given = [await ask(guard(application), "POST", "/orders", b"{}", HEADERS) for _ in range(2)]
    await guard.stop()
    assert [answer.headers["x-order"] for answer in given] == ["17", "17"]


async def test_requests_that_wait_for_a_database_that_does_not_answer_get_one_answer(tmp_path: Path) -> None:
    opened = 0
    guard = Inbox(f"sqlite:///{tmp_path}/inbox.db").idempotent("partner", caller=caller, routes=["POST /orders"])
    began, go = asyncio.Event(), asyncio.Event()

    class Silent:
        async def open(self, **_: object) -> None:
            nonlocal opened
            opened += 1
            began.set()
            await go.wait()
            raise Unavailable("made up")

    guard.inbox.store = lambda *_, **__: Silent()  # type: ignore[method-assign,assignment]
    asked = [asyncio.create_task(ask(guard(None), "POST", "/orders", b"{}", HEADERS)) for _ in range(5)]
    await began.wait()
    await asyncio.sleep(0)
    go.set()
    assert [(await answer).status for answer in asked] == [503] * 5
    assert opened == 1


async def test_a_request_whose_outcome_cannot_be_written_is_answered_during_the_outage(
    postgres_server: Postgres,
) -> None:
    shop = Shop(postgres_server.url())
    await shop.inbox.migrate()
    guard = shop.guard(lease="2s", repeat="transaction")
    began, go = asyncio.Event(), asyncio.Event()

    @shop.route()
    async def run(event: Event) -> Any:
        await event.tx.fetch("SELECT 1")
        began.set()
        await go.wait()
        return {"id": str(event.id)}

    first = asyncio.create_task(shop.post())
    await began.wait()
    await asyncio.to_thread(postgres_server.kill)
    go.set()
    told = await first  # the database is still away
    assert (told.status, told.json["type"]) == (503, "urn:hookledger:idempotency:unavailable")
    assert (await shop.post()).status == 503
    await asyncio.to_thread(postgres_server.start)
    while (answer := await shop.post()).status in (409, 503):
        await asyncio.sleep(0.1)
    assert (answer.status, answer.body) == (200, (await shop.post()).body)
    await guard.stop()


async def test_the_application_is_offered_only_plain_responses(shop: Shop) -> None:
    guard = shop.inbox.idempotent("partner", caller=caller, routes=["POST /orders"])
    offered: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        offered.extend(scope["extensions"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/orders",
        "headers": [(name.lower().encode(), value.encode()) for name, value in HEADERS],
        "extensions": {"tls": {}, "http.response.trailers": {}, "http.response.early_hint": {}},
    }
    await guard(application)(scope, receive, send)
    await guard.stop()
    assert offered == ["tls"]


async def test_a_body_that_is_not_json_is_the_clients_mistake(shop: Shop) -> None:
    shop.guard(repeat="transaction")
    shop.route()(insert)
    for _ in range(2):
        told = await ask(shop.app, "POST", "/orders", b'{"item"', HEADERS)
        assert (told.status, told.json["type"]) == (400, "urn:hookledger:idempotency:body-unreadable")
    assert await shop.orders() == []
    assert await shop.state() is State.RETRYING


async def test_a_body_that_breaks_its_schema_is_the_clients_mistake(shop: Shop, tmp_path: Path) -> None:
    """It hears what is wrong, its key stays usable, and the route does not run until the schema is corrected."""
    file = tmp_path / "schemas" / "partner" / "POST%20%2Forders" / "default.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"properties": {"item": {"maxLength": 2}}}')
    shop.inbox = Inbox(shop.inbox.database, schemas=tmp_path / "schemas")
    guard = shop.guard()
    shop.route()(insert)
    for _ in range(2):
        told = await shop.post()
        assert (told.status, told.json["type"]) == (400, "urn:hookledger:idempotency:body-unfit")
        assert "/item: expected at most 2 characters, found a string of 3 characters" in told.json["detail"]
    [event] = await shop.events()
    assert (event.state, event.cause) == (
        State.RETRYING,
        "schema break in partner/POST%20%2Forders/default.json at /item",
    )
    assert shop.calls == []
    await guard.stop()
    file.write_text("true")
    shop.inbox._schemas = None  # as in a process that starts again
    assert (await shop.post()).status == 200
    assert len(shop.calls) == 1


async def test_what_a_dead_process_left_is_reviewed_whatever_its_schema_says_by_now(
    shop: Shop, tmp_path: Path
) -> None:
    file = tmp_path / "schemas" / "partner" / "POST%20%2Forders" / "default.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"properties": {"item": {"type": "integer"}}}')
    guard = shop.inbox.idempotent("partner", caller=caller, routes=["POST /orders"])
    request = _request({"method": "POST", "headers": []}, "/orders", b'{"item": "tea"}')
    worker = Inbox(shop.inbox.database, schemas=tmp_path / "schemas", clock=shop.inbox.clock)
    worker.idempotent("partner", caller=caller, routes=["POST /orders"])
    async with worker.opened() as store:
        [claim] = await store.record_claimed(
            [arrival(guard.endpoint, Guarded(guard.routes[0], "acme", "k-1", request))], "dead", 10.0
        )
        shop.inbox.clock.offset += 3600
        left = Expired(claim.recorded.event_id, 1, "partner", "POST /orders", 1, 0, 3600.0, "dead")
        await worker.lease_reclaimer(store).reclaim_one(left)
        shop.inbox.clock.offset += 3600
    await worker.work(drain=True)
    assert await shop.state() is State.NEEDS_REVIEW


@pytest.mark.parametrize("dependency", [False, True])
async def test_a_plain_route_that_is_not_declared_plain_writes_nothing_and_fails(
    shop: Shop, dependency: bool
) -> None:
    """Its statements return coroutines that nothing awaits: an answer would be stored, and the order lost."""
    guard = shop.guard(repeat="transaction")

    @shop.app.post("/orders")
    def run(request: Request, event: Given) -> Any:
        (event if dependency else current_event(request)).tx.execute(INSERT, "tea", "1")
        return {}

    with pytest.raises(ConfigError, match=r"POST /orders is a plain function.*plain=True"):
        await shop.post()
    assert await shop.state() is State.RETRYING, "its next request runs it again"
    await guard.stop()


async def test_a_route_that_forgets_to_await_its_write_stores_no_answer(shop: Shop) -> None:
    guard = shop.guard(repeat="transaction")
    correct = False

    @shop.app.post("/orders")
    async def run(event: Given) -> Any:
        write = event.tx.execute(INSERT, "tea", "1")
        if correct:
            await write
        return {}

    refused = await shop.post()
    assert refused.status == 503
    assert (await shop.state(), await shop.orders()) == (State.RETRYING, [])
    correct = True
    assert (await shop.post()).status == 200
    assert await shop.orders() == [("tea", "1")]
    await guard.stop()


async def test_an_async_route_may_get_its_event_in_a_thread(shop: Shop) -> None:
    guard = shop.guard(repeat="transaction")

    @shop.app.post("/orders")
    async def run(tx: Statements) -> Any:
        await tx.execute(INSERT, "tea", "1")
        return {}

    assert (await shop.post()).status == 200
    assert await shop.orders() == [("tea", "1")]
    await guard.stop()


@pytest.mark.parametrize("what", ["statement", "once"])
async def test_an_async_route_that_is_declared_plain_fails_and_does_not_block_the_process(
    shop: Shop, what: str
) -> None:
    """It would wait for the event loop on the event loop, and with it every request of the process."""
    guard = shop.guard(repeat="transaction", plain=True)

    @shop.app.post("/orders")
    async def run(request: Request) -> Any:
        event: SyncEvent = current_event(request)
        if what == "once":
            event.once("order", "1")
        else:
            event.tx.execute(INSERT, "tea", "1")

    with pytest.raises(ConfigError, match="leave out plain=True"):
        await shop.post()
    assert await shop.orders() == []
    await guard.stop()


async def test_an_audit_of_its_keys_says_that_callers_choose_them(shop: Shop) -> None:
    guard = shop.guard()
    shop.route()(insert)
    await shop.post()
    await shop.post(body={"item": "coffee"})
    async with shop.inbox.operating() as context:
        report = await audit_keys(context, "partner", last=10, sample=10)
    assert (report.audit.events, report.audit.conflicts, report.fits) == (1, 1, ())
    assert _words(report, hint=False, delivered=guard.inbox.sources["partner"].delivered)[1:] == [
        "Callers choose their keys: there is no rule to check.",
        "Requests with a used key and other content, which got 422: 1 request.",
    ]


def test_a_loop_that_ends_without_a_shutdown_closes_the_guard_quietly(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(database_url)
    shop.guard()

    @shop.route()
    async def run(event: Event) -> Any:
        return {"id": str(event.id)}

    answers = [asyncio.run(shop.post()) for _ in range(2)]  # as TestClient does for each request
    assert answers[0].body == answers[1].body
    assert caplog.text == ""

    async def left() -> list[bool]:
        async with Inbox(database_url).opened() as store:
            return [worker.left for worker in await store.workers()]

    assert asyncio.run(left()) == [True, True]
