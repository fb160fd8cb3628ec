"""Who may use the API: no call answers without its role, whatever way it is asked for."""

import hashlib
import logging
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from hookledger import Inbox
from hookledger.config import decode
from hookledger.errors import ConfigError
from hookledger.model import Kind
from hookledger.operate.api.auth import Role
from hookledger.operate.api.call import Call
from hookledger.operate.api.listener import load_tokens
from hookledger.operate.api.table import CALLS
from hookledger.states import State
from tests.asgi_client import ask
from tests.builders import KIND, reach
from tests.operators import TOKENS, Desk, desk_on, make_inbox


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    async with desk_on(database_url, past=False) as made:
        yield made


async def fill(desk: Desk, call: Call) -> tuple[str, Any]:
    """A path and a body with which the call would do something."""
    event = await reach(desk.store, State.FAILED, Kind("stripe", call.name))
    decision = {"reason": "try", "expected": {"state": event.state, "claim": event.claim}}
    names = {
        "reference": str(event.id),
        "effect": "receipt",
        "downstream": "mail",
        "delivery": str(event.request_id),
        "rejection": "01234567",
        "source": "stripe",
        "provider": "stripe",
        "job": "01234567",
    }
    bodies = {"import_keys": {"keys": [["evt_9"]], "reason": "moved"}, "compare_keys": {"keys": [["evt_9"]]}}
    bodies["resolve_effect"] = {
        "decision": "happened", "reason": "seen", "expected": {"state": "unknown", "fence": 1}
    }  # fmt: skip
    bodies["try_effect"] = {"reason": "seen", "expected": {"state": "failed", "fence": 1}}
    where = {"type": call.name}
    bodies["make_job"] = {"name": "discard", "where": where, "count": 1, "reason": "because"}
    bodies["erase_events"] = {"where": where, "count": 1, "reason": "because"}
    bodies["pause_source"] = bodies["resume_source"] = {"type": "order.*", "reason": "because"}
    bodies["repair_object"] = {"object_id": "in_1", "reason": "because"}
    bodies["repair_event"] = plain = {"reason": "because"}
    decides = call.path.startswith("/events") and call.name != "resolve_effect"
    body = bodies.get(call.name) or (decision if decides else plain)
    return call.path.format(**names), body if call.takes_body else None


QUERIES = {"preview_job": {"name": "retry"}}
DONE = (
    "make_job", "pause_source", "resume_source", "erase_event", "erase_events", "prune", "show_timeline",
    "show_answers", "list_failures", "list_lag", "preview_job", "preview_prune",
)  # fmt: skip
"""Calls that have something to do in this test, and must do it with their role."""


def lesser(role: Role) -> list[str]:
    return [other.value for other in Role if not other.covers(role)]


# proves R56
async def test_every_call_needs_its_role(desk: Desk) -> None:
    for call in CALLS:
        await needs_its_role(desk, call)


async def needs_its_role(desk: Desk, call: Call) -> None:
    path, body = await fill(desk, call)
    before = await desk.snapshot()
    given: dict[str, Any] = {"query": QUERIES.get(call.name, "")}
    answer = await desk.ask(call.method, path, body, role=None, **given)
    assert (answer.status, answer.json["error"]) == (401, "not_authenticated"), call.path
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for role in lesser(call.role):
        answer = await desk.ask(call.method, path, body, role=role, **given)
        assert (answer.status, answer.json["error"]) == (403, "not_allowed"), call.path
        assert f"needs the role {call.role}" in answer.json["message"]
    assert await desk.snapshot() == before, f"{call.path} changed something without its role"
    answer = await desk.ask(call.method, path, body, role=call.role.value, **given)
    assert answer.status in ((200,) if call.name in DONE else (200, 404, 409, 422)), (call.name, answer.body)
    if call.method == "GET":
        assert await desk.snapshot() == before, f"GET {call.path} changed something"
    for name, value in (("cache-control", "no-store"), ("x-content-type-options", "nosniff")):
        assert answer.headers[name] == value
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_other_methods(desk: Desk) -> None:
    methods = ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "get", "QUERY")
    for method, path in product(methods, ("/events", "/events/x/retry", "/summary")):
        assert (await desk.ask(method, path, role=None)).status == 401
        answer = await desk.ask(method, path, role="admin")
        assert (answer.status, answer.headers["allow"]) == (405, "POST" if path.endswith("retry") else "GET")


PATHS = (
    "", "/", "//events", "/events/", "/Events", "/./events", "/../api/events", "/events//", "/events/x/", "/events;a",
    "/events/x/../summary", "/events/a/b/preview", "/circuits/a/b/trip", "/%65vents", "/events\n", "/events\0",
)  # fmt: skip


async def test_paths_that_are_none(desk: Desk) -> None:
    for path in PATHS:
        assert (await desk.ask("GET", path, role=None)).status == 401
        answer = await desk.ask("GET", path, role="admin")
        assert (answer.status, answer.json["error"]) == (404, "no_such_call"), path


NO_TOKENS = (
    "", "Bearer", "Bearer ", "Bearer x", f"Basic {TOKENS['admin']}", TOKENS["admin"],
    f"Bearer {TOKENS['admin'][:-1]}",
    f"Bearer {TOKENS['admin']}x", f"Bearer {TOKENS['admin'].upper()}", f"Bearer {TOKENS['admin']}, Bearer x",
    "Bearer \u00e9\u00e8" * 20, "Bearer " + "x" * 100_000,
    "Bearer " + hashlib.sha256(TOKENS["admin"].encode()).hexdigest(),
)  # fmt: skip


async def test_what_is_no_token(desk: Desk) -> None:
    for header in NO_TOKENS:
        answer = await desk.ask("GET", "/summary", headers={"authorization": header})
        assert answer.status == 401, header
        assert TOKENS["admin"] not in str(answer)


async def test_only_one_header_counts(desk: Desk) -> None:
    good = ("authorization", f"Bearer {TOKENS['admin']}")
    for headers in ([good, good], [good, ("authorization", "Bearer x")]):
        assert (await ask(desk.inbox.operator, "GET", "/api/v1/summary", b"", headers)).status == 401
    cookie = [("cookie", f"token={TOKENS['admin']}"), ("x-api-key", TOKENS["admin"])]
    query = b"token=" + TOKENS["admin"].encode()
    assert (await ask(desk.inbox.operator, "GET", "/api/v1/summary", b"", cookie, query=query)).status == 401
    other_case = [("Authorization", f"bearer {TOKENS['admin']}")]
    assert (await ask(desk.inbox.operator, "GET", "/api/v1/summary", b"", other_case)).status == 200


async def test_failures_are_counted_and_nothing_else_is_kept(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for number in range(50):
            await desk.ask("GET", "/summary", headers={"authorization": f"Bearer stranger-{number}"})
        assert (await desk.ask("GET", "/health", role="viewer")).json["unauthenticated"] == 50
        event = await desk.ask("POST", "/circuits/mail/trip", {"reason": "down"})
        assert event.status == 200
    said = [record.getMessage() for record in caplog.records if "valid token" in record.getMessage()]
    assert len(said) == 1, "however many there are"
    for secret in (*TOKENS.values(), "stranger-"):
        assert secret not in caplog.text


async def test_the_name_of_the_token_is_the_actor(desk: Desk) -> None:
    row = await reach(desk.store, State.FAILED, KIND)
    body = {"reason": "mended", "expected": {"state": "failed", "claim": row.claim}}
    assert (await desk.ask("POST", f"/events/{row.id}/retry", body)).json["state"] == "pending"
    [action] = (await desk.ask("GET", f"/events/{row.id}")).json["actions"]
    assert (action["name"], action["actor"], action["reason"]) == ("retry", "operator-ada", "mended")


async def test_another_version_is_told_where_the_api_is(desk: Desk) -> None:
    token = [("authorization", f"Bearer {TOKENS['viewer']}")]
    for path in ("/api", "/api/", "/api/events", "/api/v2/events", "/api/v10", "/api/V1/events"):
        for pairs in ([], token):
            answer = await ask(desk.inbox.operator, "GET", path, b"", pairs)
            assert (answer.status, answer.json["error"]) == (404, "no_such_version"), path
            assert "use /api/v1" in answer.json["message"]


# ── without tokens, and with wrong ones ──


async def test_without_tokens_there_is_no_api(sqlite_url: str) -> None:
    inbox = make_inbox(sqlite_url, {})
    await inbox.migrate()
    try:
        for path in ("/api/v1/events", "/api/v1", "/api/v1/x", "/api"):
            answer = await ask(inbox.operator, "GET", path, b"", [("authorization", "Bearer ")])
            assert (answer.status, answer.json["error"]) == (404, "api_off")
            assert "tokens = [" in answer.json["message"]
        assert (await ask(inbox.operator, "GET", "/readyz")).status == 200
        assert (await ask(inbox.operator, "GET", "/healthz")).status == 200
        assert (await ask(inbox.operator, "GET", "/apix")).status == 404
    finally:
        await inbox.operator.stop()


GOOD = {"name": "ada", "role": "viewer", "token": "a-made-up-token-of-ada"}


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ([{**GOOD, "token": "brief-one"}], "too short: use at least 20"),
        ([{**GOOD, "token": " " * 30}], "empty"),
        ([{**GOOD, "token": ""}], "empty"),
        ([{**GOOD, "token": "with a space in the middle"}], "visible ASCII"),
        ([{**GOOD, "token": "env:HOOKLEDGER_NOT_SET_AT_ALL"}], "HOOKLEDGER_NOT_SET_AT_ALL is not set"),
        ([{**GOOD, "token": "file:/nowhere/at/all"}], "cannot be read"),
        ([{**GOOD, "name": ""}], "is not allowed: use letters"),
        ([{**GOOD, "name": "ada\nbob"}], "is not allowed: use letters"),
        ([GOOD, {**GOOD, "token": "a-made-up-token-of-bob"}], "same name"),
        ([GOOD, {**GOOD, "name": "bob"}], "are equal"),
        ([{**GOOD, "role": "root"}], "root"),
        ([{**GOOD, "rol": "viewer"}], "rol"),
    ],
)
def test_tokens_that_are_refused(tokens: list[dict[str, str]], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_tokens(Inbox("sqlite:///x.db", settings=decode({"operator": {"tokens": tokens}})))
    told = [one["token"] for one in tokens if one["token"].strip() and not one["token"].startswith(("env:", "file:"))]
    assert not [text for text in told if text in str(caught.value)]


def test_a_token_is_never_shown() -> None:
    settings = decode({"operator": {"tokens": [GOOD]}})
    assert GOOD["token"] not in repr(settings.operator)
    assert GOOD["token"] not in repr(load_tokens(Inbox("sqlite:///x.db", settings=settings)).__dict__)
