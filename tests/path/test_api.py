"""The API as operators use it: the calls, what changed meanwhile, and input that nobody should send."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import msgspec
import pytest
from starlette.datastructures import QueryParams

from hookledger import Op
from hookledger.ledger import Completion
from hookledger.operate.api.app import Api
from hookledger.operate.api.auth import Role
from hookledger.operate.api.call import Call, Look
from hookledger.operate.api.table import CALLS
from hookledger.operate.context import Context
from hookledger.receive.secrets import load_secret
from hookledger.states import CallOutcome, EffectKind, Repeat, State
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Watch
from hookledger.store.ops.reviews import ANSWERS
from tests.asgi_client import Site, ask, stripe_event
from tests.builders import KIND, LEASE, WORKER, Way, claimed, delivered, reach, record, recorded, settle, way_out
from tests.guards import ask as guarded
from tests.ledger import finish, intent, plan, start, take
from tests.operators import TOKENS, Desk, desk_on, make_inbox
from tests.services.postgres import Postgres


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    async with desk_on(database_url, past=False) as made:
        yield made


async def failed(desk: Desk) -> dict[str, Any]:
    row = await reach(desk.store, State.FAILED, KIND)
    shown: dict[str, Any] = (await desk.ask("GET", f"/events/{row.id}")).json
    return shown


async def in_review(desk: Desk, why: str = "account acct_1 is cancelled") -> dict[str, Any]:
    owner = await claimed(desk.store, "evt_1")
    assert await settle(desk.store, owner, "review", reason=why, error=f"Review: {why}")
    shown: dict[str, Any] = (await desk.ask("GET", f"/events/{owner.id}")).json
    return shown


def decided(shown: dict[str, Any], **other: Any) -> dict[str, Any]:
    event = shown["event"]
    return {"reason": "mended", "expected": {"state": event["state"], "claim": event["claim"]}, **other}


# ── reading ──


async def test_pages_of_events(desk: Desk) -> None:
    await record(desk.store, *(delivered(f"evt_{n}", b"%d" % n) for n in range(7)))
    seen, query = [], {"limit": 3}
    for _ in range(3):
        page = (await desk.ask("GET", "/events", role="viewer", query=query)).json
        seen += [row["key"] for row in page["events"]]
        query = {"limit": 3, "before": page["next"]}
    assert seen == [f"evt_{n}" for n in reversed(range(7))]
    assert page["next"] is None


async def test_guards_of_an_event(desk: Desk) -> None:
    """What was not applied is shown, to viewers too: versions and keys are no content."""
    newer = await claimed(desk.store, "evt_9")
    await guarded(desk.store, newer, 1731)
    older = await claimed(desk.store, "evt_8")
    await guarded(desk.store, older, 1720)
    words = "stale for subscription sub_1: version 1731 by evt_9 was applied, this is 1720"
    for role in ("viewer", "operator"):
        shown = (await desk.ask("GET", f"/events/{older.id}", role=role)).json
        [answer] = shown["guards"]
        assert {name: answer[name] for name in ("name", "key", "version", "applied", "tie", "words")} == {
            "name": "subscription",
            "key": "sub_1",
            "version": "1720",
            "applied": False,
            "tie": None,
            "words": words,
        }
        assert (answer["other_version"], answer["other_key"]) == ("1731", "evt_9")
        assert (answer["now_version"], answer["now_event_id"]) == ("1731", str(newer.id))
        assert [one["stale"] for one in shown["replay"]["guards"]] == [True]
        entries = (await desk.ask("GET", f"/events/{older.id}/timeline", role=role)).json["entries"]
        [entry] = [entry for entry in entries if entry["kind"] == "guard"]
        assert (entry["what"], entry["words"], entry["guard"]) == ("stale", words, "subscription:sub_1")
    preview = (await desk.ask("GET", f"/events/{newer.id}/preview", role="viewer")).json
    assert [one["stale"] for one in preview["guards"]] == [False]


async def test_filters_are_those_of_the_filter(desk: Desk) -> None:
    await reach(desk.store, State.FAILED, KIND)
    await recorded(desk.store, "evt_new", b"other", source="github", type="push")
    for query, keys in (
        ({"states": ["failed", "retrying"]}, 1),
        ({"states": "processed"}, 0),
        ({"source": "github"}, 1),
        ({"type": "pu*"}, 1),
        ({"key": "evt_new"}, 1),
        ({"text": "oth"}, 1),
        ({"since": "2000-01-01T00:00:00Z", "until": "2100-01-01T00:00:00+02:00"}, 2),
        ({"attention": "true"}, 1),
    ):
        answer = await desk.ask("GET", "/events", query=query)
        assert len(answer.json["events"]) == keys, (query, answer.body)
        assert (await desk.ask("GET", "/events-count", query=query)).json == {"count": keys}


async def test_pages_of_actions(desk: Desk) -> None:
    shown = await failed(desk)
    event = shown["event"]["id"]
    assert (await desk.ask("POST", f"/events/{event}/retry", decided(shown))).status == 200
    for n in range(3):
        body = {"type": f"t{n}", "reason": "an \x1b[31mincident"}
        assert (await desk.ask("POST", "/sources/stripe/pause", body)).status == 200
    first = (await desk.ask("GET", "/actions", role="viewer", query={"limit": 3})).json
    assert [one["name"] for one in first["actions"]] == ["pause"] * 3
    assert {one["event_id"] for one in first["actions"]} == {None}
    rest = (await desk.ask("GET", "/actions", role="viewer", query={"limit": 3, "before": first["next"]})).json
    [one] = rest["actions"]
    assert (one["name"], one["actor"], one["reason"], one["event_id"]) == ("retry", "operator-ada", "mended", event)
    assert (one["from_state"], one["to_state"], rest["next"]) == ("failed", "pending", None)
    of_event = (await desk.ask("GET", "/actions", query={"event": event})).json
    assert of_event["actions"] == [one]
    for query in ({"actor": "a\0b"}, {"name": "x" * 10_000}, {"since": "9999-01-01T00:00:00Z"}, {"other": "1"}):
        assert (await desk.ask("GET", "/actions", query=query)).status == 400, query
    assert (await desk.ask("GET", "/actions", role=None)).status == 401


async def test_an_event_in_full(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1", body=b'{"secret": "of the customer"}')
    transaction = desk.store.transaction()
    await transaction.once(intent(owner, "credit-1", name="credit", kind=EffectKind.ONCE, repeat=None))
    await transaction.rollback()
    [_] = await desk.store.ledger.start([intent(owner, "mail-1", name="mail", kind=EffectKind.CALL)], "w")
    await settle(desk.store, owner, "fail", error="Traceback: of the customer")
    shown = (await desk.ask("GET", "/events/evt_1")).json
    assert (shown["event"]["state"], shown["complete"]) == ("failed", True)
    assert shown["event"]["error"] == "Traceback: of the customer"
    [effect] = shown["effects"]
    assert (effect["name"], effect["state"], len(effect["calls"])) == ("mail", "started", 1)
    assert isinstance(effect["arguments"], dict), "JSON, not base64 of it"
    assert effect["idempotency_key"].startswith("hl_")
    assert shown["replay"]["verdict"] in ("will do", "needs a decision")
    assert "body" not in shown["request"]
    assert (await desk.ask("GET", f"/events/{shown['event']['id'][:13]}")).json["event"] == shown["event"]

    viewed = await desk.ask("GET", "/events/evt_1", role="viewer")
    assert b"of the customer" not in viewed.body
    [effect] = viewed.json["effects"]
    assert (viewed.json["complete"], effect["arguments"], effect["error"]) == (False, None, None)
    assert b"of the customer" not in (await desk.ask("GET", "/events", role="viewer")).body

    request = (await desk.ask("GET", "/events/evt_1/request")).json
    assert base64.b64decode(request["body"]) == b'{"secret": "of the customer"}'


# proves R56
async def test_a_viewer_reads_no_argument_that_an_exception_quotes(desk: Desk) -> None:
    quoted = "of the customer"
    ways: list[tuple[str, Way, str]] = [
        ("evt_1", "fail", f"attempts exhausted (3): ValueError: no account {quoted}"),
        ("evt_2", "review", f"effect charge may have happened: {quoted}"),
        ("evt_3", "skip", f"nothing to do {quoted}"),
    ]
    for key, transition, reason in ways:
        owner = await claimed(desk.store, key)
        error = None if transition == "skip" else f"Traceback: {reason}"
        await settle(desk.store, owner, transition, reason=reason, error=error)
    pages = [f"/events/evt_{n}{more}" for n in (1, 2, 3) for more in ("", "/timeline", "/answers", "/preview")]
    for path in ("/events", "/failures", "/doctor", *pages):
        assert quoted.encode() not in (await desk.ask("GET", path, role="viewer")).body, path
    assert quoted.encode() in (await desk.ask("GET", "/events")).body
    rows = {row["key"]: row for row in (await desk.ask("GET", "/events", role="viewer")).json["events"]}
    assert rows["evt_1"]["reason"] == "attempts exhausted (3): ValueError: …"
    assert (rows["evt_2"]["reason"], rows["evt_3"]["reason"]) == ("…", "…")


async def test_a_viewer_reads_our_own_reasons(desk: Desk) -> None:
    await recorded(desk.store, "evt_1", skip="the source does not accept this event type")
    [row] = (await desk.ask("GET", "/events", role="viewer")).json["events"]
    assert row["reason"] == "the source does not accept this event type"


@pytest.mark.parametrize("name", ["text", "error"])
async def test_a_viewer_cannot_search_for_what_it_may_not_see(desk: Desk, name: str) -> None:
    await recorded(desk.store, "evt_1", b"of the customer")
    for path in ("/events", "/events-count"):
        answer = await desk.ask("GET", path, role="viewer", query={name: "of the"})
        assert (answer.status, f"the filter {name} needs the role operator" in answer.json["message"]) == (403, True)
        assert (await desk.ask("GET", path, query={name: "of the"})).status == 200


async def test_references(desk: Desk) -> None:
    answer = await desk.ask("GET", "/events/evt_none")
    assert (answer.status, answer.json["error"]) == (404, "not_found")
    await recorded(desk.store, "evt_1", b"1")
    await recorded(desk.store, "evt_1", b"2", source="github")
    await desk.store.know_sources(["stripe", "github"])
    answer = await desk.ask("GET", "/events/evt_1")
    assert (answer.status, answer.json["error"]) == (400, "ambiguous")


async def test_the_overview(desk: Desk) -> None:
    await reach(desk.store, State.FAILED, KIND)
    assert (await desk.ask("GET", "/summary")).json["events"]["failed"] == 1
    health = (await desk.ask("GET", "/health", role="viewer")).json
    assert (health["health"]["writable"], health["caller"]) == (True, {"name": "viewer-ada", "role": "viewer"})
    report = (await desk.ask("GET", "/doctor", query={"limit": 10})).json
    assert any("all accounted for" in finding["says"] for finding in report["findings"])
    assert [one["name"] for one in (await desk.ask("GET", "/sources")).json["sources"]] == ["stripe", "github"]
    assert "stripe" in (await desk.ask("GET", "/providers")).json["providers"]
    assert "Stripe" in (await desk.ask("GET", "/providers/stripe")).json["title"]
    assert (await desk.ask("GET", "/sources/stripe/keys")).json["audit"]["events"] == 1
    await desk.store.register("worker-1", [("stripe", "*")])
    [worker] = (await desk.ask("GET", "/workers")).json["workers"]
    assert (worker["id"], worker["alive"]) == ("worker-1", True)


# ── deciding ──


async def test_retry_and_the_answer_that_was_lost(desk: Desk) -> None:
    shown = await failed(desk)
    path = f"/events/{shown['event']['id']}/retry"
    assert (await desk.ask("POST", path, decided(shown))).json["state"] == "pending"
    before = await desk.snapshot()
    answer = await desk.ask("POST", path, decided(shown), role="admin")
    assert (answer.status, answer.json["error"]) == (409, "conflict")
    assert "is pending now" in answer.json["message"]
    assert "retry by operator-ada" in answer.json["message"], "whoever asks again is told that it was done"
    assert await desk.snapshot() == before


@pytest.mark.parametrize("name", ["retry", "replay", "discard", "approve", "reject", "settle"])
async def test_two_operators_race(desk: Desk, name: str) -> None:
    shown = await (in_review(desk) if name in ANSWERS else failed(desk))
    path = f"/events/{shown['event']['id']}/{name}"
    roles = ["operator", "admin"] * 4
    answers = await asyncio.gather(*(desk.ask("POST", path, decided(shown), role=role) for role in roles))
    assert sorted(answer.status for answer in answers) == [200, *[409] * 7]
    [action] = (await desk.ask("GET", f"/events/{shown['event']['id']}")).json["actions"]
    winner = roles[[answer.status for answer in answers].index(200)]
    assert action["actor"] == f"{winner}-ada"
    lost = next(answer for answer in answers if answer.status == 409)
    assert f"{name} by {winner}-ada" in lost.json["message"]


@pytest.mark.parametrize(
    ("name", "state"), [("approve", "pending"), ("reject", "discarded"), ("settle", "processed")]
)
async def test_a_review_is_answered_once(desk: Desk, name: str, state: str) -> None:
    shown = await in_review(desk)
    path = f"/events/{shown['event']['id']}/{name}"
    before = await desk.snapshot()
    assert (await desk.ask("POST", path, decided(shown), role="viewer")).status == 403
    changes = ({"claim": 1}, {"claim": 99}, {"state": "failed"})
    for change in changes:
        body = decided(shown)
        body["expected"] |= change
        assert (await desk.ask("POST", path, body)).status == 409, change
    for wrong in ({"reason": ""}, {"reason": "because"}, {**decided(shown), "yes": True}):
        assert (await desk.ask("POST", path, wrong)).status == 400, wrong
    assert await desk.snapshot() == before
    answer = await desk.ask("POST", path, decided(shown))
    assert (answer.status, answer.json["state"], answer.json["run"]) == (200, state, 1 + (name == "approve"))
    assert (answer.json["approval_id"] is not None) is (name == "approve")
    before = await desk.snapshot()
    answer = await desk.ask("POST", path, decided(shown))
    assert (answer.status, answer.json["error"]) == (409, "conflict")
    assert f"is {state} now" in answer.json["message"]
    assert f"{name} by operator-ada" in answer.json["message"]
    assert await desk.snapshot() == before
    assert (await desk.ask("POST", f"/events/evt_9/{name}", decided(shown))).status == 404


async def test_an_approval_on_its_preview(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    asked = intent(owner, "mail-1", name="mail", kind=EffectKind.CALL, repeat=Repeat.SAFE)
    await desk.store.ledger.start([asked], WORKER)
    await desk.store.ledger.finish([Completion(asked.identity, 1, CallOutcome.REFUSED)])
    await settle(desk.store, owner, "review")
    preview = (await desk.ask("GET", "/events/evt_1/preview", role="viewer")).json
    expected = {"state": "needs_review", "claim": preview["claim"], "preview": "0" * 32}
    answer = await desk.ask("POST", "/events/evt_1/approve", {"reason": "she paid", "expected": expected})
    assert (answer.status, "the preview no longer applies" in answer.json["message"]) == (409, True)
    expected["preview"] = preview["fingerprint"]
    answer = await desk.ask("POST", "/events/evt_1/approve", {"reason": "she paid", "expected": expected})
    assert (answer.status, answer.json["run"]) == (200, 2)


async def test_an_unknown_effect_is_not_approved(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    started = await start(desk.store, owner, "charge-1")
    await finish(desk.store, started.identity, 1, "unknown")
    await settle(desk.store, owner, "review")
    before = await desk.snapshot()
    shown = (await desk.ask("GET", "/events/evt_1")).json
    answer = await desk.ask("POST", "/events/evt_1/approve", decided(shown))
    assert (answer.status, "hookledger resolve" in answer.json["message"]) == (409, True)
    assert await desk.snapshot() == before


async def test_a_viewer_reads_no_review_that_was_answered(desk: Desk) -> None:
    shown = await in_review(desk, "account of the customer is cancelled")
    ident = shown["event"]["id"]
    assert (await desk.ask("POST", f"/events/{ident}/reject", decided(shown))).status == 200
    for path in (f"/events/{ident}", f"/events/{ident}/timeline", f"/events/{ident}/answers"):
        assert b"of the customer" in (await desk.ask("GET", path)).body, path
        assert b"of the customer" not in (await desk.ask("GET", path, role="viewer")).body, path
    [action] = (await desk.ask("GET", f"/events/{ident}/answers", role="viewer")).json["reviews"]
    assert (action["name"], action["actor"], action["reason"]) == ("reject", "operator-ada", "mended")


async def test_what_was_not_seen_is_not_decided(desk: Desk) -> None:
    shown = await failed(desk)
    before = await desk.snapshot()
    changes = ({"claim": 99}, {"state": "needs_review"}, {"state": "processed", "claim": 0})
    for name, change in product(("retry", "replay", "discard"), changes):
        body = decided(shown)
        body["expected"] |= change
        assert (await desk.ask("POST", f"/events/{shown['event']['id']}/{name}", body)).status == 409, (name, change)
    assert await desk.snapshot() == before


async def test_a_replay_on_its_preview(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    asked = intent(owner, "mail-1", name="mail", kind=EffectKind.LATER, repeat=Repeat.SAFE)
    transaction = desk.store.transaction()
    await transaction.plan(asked)
    await transaction.commit([way_out(owner, "complete")])
    preview = (await desk.ask("GET", "/events/evt_1/preview", role="viewer")).json
    expected = {"state": preview["state"], "claim": preview["claim"], "preview": preview["fingerprint"]}
    [started] = await desk.store.ledger.claim(WORKER, [("mail", 1, LEASE)])  # the outbox goes on meanwhile
    done = Completion(asked.identity, started.number, CallOutcome.DONE, b"1")
    await desk.store.ledger.finish([done])
    before = await desk.snapshot()
    answer = await desk.ask("POST", "/events/evt_1/replay", {"reason": "again", "expected": expected})
    assert (answer.status, "the preview no longer applies" in answer.json["message"]) == (409, True)
    assert await desk.snapshot() == before
    preview = (await desk.ask("GET", "/events/evt_1/preview")).json
    expected["preview"] = preview["fingerprint"]
    answer = await desk.ask("POST", "/events/evt_1/replay", {"reason": "again", "expected": expected})
    assert (answer.status, answer.json["run"]) == (200, 2)


async def test_an_effect_is_repeated_by_name_only(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    await start(desk.store, owner, "mail-1", name="mail")
    identity = intent(owner, "mail-1", name="mail").identity
    await desk.store.ledger.finish([Completion(identity, 1, CallOutcome.DONE, b"1")])
    await settle(desk.store, owner, "complete")
    query = {"repeat_effects": ["mail:mail-1"]}
    [effect] = (await desk.ask("GET", "/events/evt_1/preview", query=query)).json["effects"]
    assert effect["in_replay"] == "repeated"
    shown = (await desk.ask("GET", "/events/evt_1")).json
    body = decided(shown, repeat_effects=["mail"])
    assert (await desk.ask("POST", "/events/evt_1/replay", body)).status == 200
    shown = (await desk.ask("GET", "/events/evt_1")).json
    [effect] = shown["effects"]
    assert effect["state"] == "planned"
    assert {action["subject"] for action in shown["actions"]} == {"mail:mail-1", "run 2"}
    answer = await desk.ask("POST", "/events/evt_1/replay", decided(shown, repeat_effects=["letter"]))
    assert (answer.status, "has no effect 'letter'" in answer.json["message"]) == (404, True)


async def test_resolve(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    await start(desk.store, owner, "mail-1", name="mail")
    identity = intent(owner, "mail-1", name="mail").identity
    await desk.store.ledger.finish([Completion(identity, 1, CallOutcome.UNKNOWN, None, "time-out")])
    await settle(desk.store, owner, "review")
    [effect] = (await desk.ask("GET", "/events/evt_1")).json["effects"]
    assert effect["state"] == "unknown"
    body = {
        "decision": "happened",
        "reason": "seen in the log of the remote",
        "expected": {"state": "unknown", "fence": effect["fence"]},
        "result": {"id": 7},
    }
    wrong = {**body, "expected": {"state": "unknown", "fence": effect["fence"] + 1}}
    path = f"/events/evt_1/effects/{effect['idempotency_key']}/resolve"

    async def mail(op: Op, to: str) -> dict[str, int]:
        raise NotImplementedError

    desk.inbox.effect(repeat="never")(mail)
    before = await desk.snapshot()
    without = await desk.ask("POST", path, {**body, "result": None})
    assert (without.status, """--result '{"text": 0}'""" in without.json["message"]) == (422, True)
    assert (await desk.ask("POST", path, {**body, "result": "seven"})).status == 422
    assert (await desk.ask("POST", path, wrong)).status == 409
    assert (await desk.ask("POST", path, {**body, "decision": "cancel"})).status == 422, "it has no result"
    assert await desk.snapshot() == before
    answer = await desk.ask("POST", path, body)
    assert answer.status == 200, answer.body
    assert answer.json["effect"]["state"] == "done"
    assert answer.json["effect"]["result"] == {"id": 7}
    answer = await desk.ask("POST", path, body)
    assert (answer.status, "has changed: it is now done" in answer.json["message"]) == (409, True)


async def test_effects_by_state_and_one_tried_now(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    async with desk.inbox.opened(handlers=1) as store:
        for key in ("mail-1", "mail-2"):
            [identity] = await plan(store, owner, key, name="mail")
            await take(store, "mail")
            await finish(store, identity, 1, "refused", error="422: payload of Ada")
    await settle(desk.store, owner, "complete")
    page = (await desk.ask("GET", "/effects", query={"states": ["failed"], "limit": 1})).json
    [first] = page["effects"]
    [second] = (await desk.ask("GET", "/effects", query={"before": page["next"]})).json["effects"]
    assert {first["key"], second["key"]} == {"mail-1", "mail-2"}
    assert (first["why"], first["calls"], first["state"]) == ("422: payload of Ada", 1, "failed")
    seen = (await desk.ask("GET", "/effects", role="viewer")).json["effects"]
    assert [one["why"] for one in seen] == [None, None], "errors may quote a payload"
    assert (await desk.ask("GET", "/effects", query={"states": ["done"]})).json == {"effects": [], "next": None}
    for wrong in ("before=x", f"before={'0' * 36}:{'0' * 64}", "states=lost", "name="):
        assert (await desk.ask("GET", "/effects", query=wrong)).status in (400, 422), wrong

    path = f"/events/evt_1/effects/{first['idempotency_key']}/try"
    body = {"reason": "the remote is mended", "expected": {"state": "failed", "fence": first["fence"]}}
    before = await desk.snapshot()
    assert (await desk.ask("POST", path, body, role="viewer")).status == 403
    stale = {**body, "expected": {"state": "planned", "fence": first["fence"]}}
    assert (await desk.ask("POST", path, stale)).status == 409
    assert await desk.snapshot() == before
    answer = await desk.ask("POST", path, body)
    assert answer.status == 200, answer.body
    assert (answer.json["effect"]["state"], answer.json["effect"]["tries"]) == ("planned", 0)
    again = await desk.ask("POST", path, body)
    assert (again.status, "has changed: it is now planned" in again.json["message"]) == (409, True)
    [action] = (await desk.ask("GET", "/events/evt_1")).json["actions"]
    assert (action["name"], action["subject"]) == ("try", f"mail:{first['key']}")


async def test_alerts(desk: Desk) -> None:
    await desk.store.alert_looks.raise_(AlertKind.CONSISTENCY, "events", "they do not add up")
    await desk.store.alert_looks.look(Watch("ops", frozenset({AlertKind.CONSISTENCY})))
    answer = (await desk.ask("GET", "/alerts", role="viewer")).json
    [row] = answer["alerts"]
    assert (row["title"], row["command"]) == ("events: they do not add up", "hookledger doctor")
    assert (answer["totals"], answer["next"]) == ({"waiting": 1, "sent": 0, "failed": 0}, None)
    assert (await desk.ask("GET", "/alerts", query={"state": "sent"})).json["alerts"] == []
    assert (await desk.ask("GET", "/alerts", query={"limit": 1})).json["next"] == row["message"]["id"]


async def test_circuits(desk: Desk) -> None:
    [circuit] = (await desk.ask("POST", "/circuits/mail/trip", {"reason": "down"})).json["circuits"]
    assert (circuit["downstream"], circuit["state"], circuit["retry_in"]) == ("mail", "open", None)
    assert (await desk.ask("GET", "/circuits", role="viewer")).json["circuits"][0]["state"] == "open"
    [circuit] = (await desk.ask("POST", "/circuits/mail/reset", {"reason": "up"})).json["circuits"]
    assert circuit["state"] == "closed"


async def test_quarantined_delivery_is_accepted_once(desk: Desk) -> None:
    inbox = desk.inbox
    site = Site(inbox)
    try:
        assert (await site.deliver(stripe_event("evt_1"))).status == 202
        assert (await site.deliver(stripe_event("evt_1", livemode=True))).json["status"] == "conflict"
    finally:
        await inbox.asgi.stop()
    [odd] = (await desk.ask("GET", "/quarantine", role="viewer", query={"outcome": "conflict"})).json["deliveries"]
    [conflict] = (await desk.ask("GET", f"/events/{odd['event_id']}/conflicts")).json["conflicts"]
    assert conflict["delivery"] == odd["delivery"]
    [change] = conflict["difference"]["changes"]
    assert (change["path"], change["delivery"]) == ("livemode", "true")
    assert (await desk.ask("GET", f"/events/{odd['event_id']}/conflicts", role="viewer")).status == 403, "payload"
    shown = (await desk.ask("GET", f"/quarantine/{odd['delivery']}")).json
    assert json.loads(base64.b64decode(shown["body"]))["livemode"] is True
    assert not [one for one in shown["headers"] if "authorization" in one["name"].lower()]
    path = f"/quarantine/{odd['delivery']}/accept"
    accepted = await desk.ask("POST", path, {"reason": "both are meant"})
    assert (accepted.status, accepted.json["state"]) == (200, "pending")
    assert (await desk.ask("POST", path, {"reason": "both are meant"})).status == 409


async def test_rejected_requests_verified_again(desk: Desk) -> None:
    site = Site(desk.inbox)
    try:
        wrong = await site.deliver(stripe_event("evt_1"), secret="whsec_of_somebody_else")
        assert wrong.status == 401
    finally:
        await desk.inbox.asgi.stop()  # writes down what it refused
    [row] = (await desk.ask("GET", "/rejections", role="viewer")).json["rejections"]
    assert row["reason"] == "signature_mismatch"
    assert [count["count"] for count in (await desk.ask("GET", "/rejections-count")).json["counts"]] == [1]
    shown = (await desk.ask("GET", f"/rejections/{row['id']}")).json
    assert json.loads(base64.b64decode(shown["body"]))["id"] == "evt_1"
    [judged] = (await desk.ask("GET", "/sources/stripe/rejections/recheck")).json["requests"]
    assert (judged["authentic"], judged["reason_now"]) == (False, "signature_mismatch")
    answer = await desk.ask("POST", "/sources/stripe/rejections/recheck", {"reason": "secret mended"})
    assert (answer.status, answer.json["requests"][0]["recorded"]) == (200, [])
    assert (await desk.ask("GET", "/sources/none/rejections/recheck")).status == 404
    source = desk.inbox.sources["stripe"]
    mended = load_secret("whsec_of_somebody_else", source.endpoint.contract)
    source.endpoint = msgspec.structs.replace(source.endpoint, secrets=(mended,))
    answer = await desk.ask("POST", "/sources/stripe/rejections/recheck", {"reason": "secret mended"})
    [[became]] = [judged["recorded"] for judged in answer.json["requests"]]
    event = (await desk.ask("GET", f"/events/{became['event_id']}")).json
    assert became == {"outcome": "accepted", "event_id": event["event"]["id"], "state": None}


async def test_keys_from_elsewhere(desk: Desk) -> None:
    keys = {"keys": [["evt_1"], ["evt_2"]]}
    found = (await desk.ask("POST", "/sources/stripe/keys/compare", keys, role="viewer")).json
    assert (found["given"], found["missing"]) == (2, 2)
    path, body = "/sources/stripe/keys/import", {**keys, "reason": "moved"}
    assert (await desk.ask("POST", path, body, role="admin")).json == {"given": 2, "new": 2, "known": 0}
    assert (await desk.ask("POST", path, body, role="admin")).json == {"given": 2, "new": 0, "known": 2}
    answer = await desk.ask("POST", path, {**body, "keys": [["evt_3"], ["a", "b"]]}, role="admin")
    assert (answer.status, "entry 2" in answer.json["message"]) == (422, True)


# ── what nobody should send ──


BODIES = (
    b"", b"null", b"[]", b"{", b'{"reason": "x"}', b"\xff\xfe", b"[" * 100_000,
    b'{"reason": "\\ud800", "expected": {"state": "failed", "claim": 1}}',
    b'{"reason": 1, "expected": {"state": "failed", "claim": 1}}',
    b'{"reason": "", "expected": {"state": "failed", "claim": 1}}',
    b'{"reason": " \\t ", "expected": {"state": "failed", "claim": 1}}',
    b'{"reason": "a\\u0000b", "expected": {"state": "failed", "claim": 1}}',
    b'{"reason": "x", "expected": {"state": "failed", "claim": -1}}',
    b'{"reason": "x", "expected": {"state": "failed", "claim": 1e300}}',
    b'{"reason": "x", "expected": {"state": "failed", "claim": 99999999999999999999999999}}',
    b'{"reason": "x", "expected": {"state": "broken", "claim": 1}}',
    b'{"reason": "x", "expected": {"state": "failed", "claim": 1}, "more": 1}',
)  # fmt: skip


async def test_bodies_that_are_none(desk: Desk) -> None:
    shown = await failed(desk)
    before = await desk.snapshot()
    for name, body in product(("retry", "replay", "discard"), BODIES):
        answer = await desk.ask("POST", f"/events/{shown['event']['id']}/{name}", body)
        assert (answer.status, answer.json["error"]) == (400, "malformed"), answer.body
    assert await desk.snapshot() == before


NOT_JSON = (
    {"content-type": ""}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "multipart/form-data; boundary=x"}, {"content-encoding": "gzip"},
)  # fmt: skip


async def test_only_json_is_taken(desk: Desk) -> None:
    shown = await failed(desk)
    for headers in NOT_JSON:
        answer = await desk.ask("POST", f"/events/{shown['event']['id']}/retry", decided(shown), headers=headers)
        assert (answer.status, answer.json["error"]) == (415, "not_json"), headers


async def test_large_bodies(desk: Desk) -> None:
    body = b'{"reason": "' + b"x" * 2**20
    assert (await desk.ask("POST", "/circuits/mail/trip", body)).status == 413
    pairs = [("authorization", f"Bearer {TOKENS['admin']}"), ("content-type", "application/json")]
    chunks = [b"x" * 2**16] * 64
    answer = await ask(desk.inbox.operator, "POST", "/api/v1/circuits/mail/trip", chunks, pairs)
    assert answer.status == 413


WRONG_QUERIES = (
    "limit=0", "limit=501", "limit=-1", "limit=x", "limit=1e9", "limit=99999999999999999999", "limit=1&limit=2",
    "before=x", "before=null", "before=NULL", "since=null", "before=", "unknown=1", "states=broken", "source=",
    "source=a%00b", "text=%00", "since=2020-01-01", "since=x", "since=9999999999999999999", "until=0.5",
    "attention=maybe", "key=%00",
)  # fmt: skip


async def test_queries_that_are_none(desk: Desk) -> None:
    for query in WRONG_QUERIES:
        answer = await desk.ask("GET", "/events", query=query)
        assert (answer.status, answer.json["error"]) == (400, "malformed"), query


async def test_very_many_parameters_are_not_looked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is looked for among all: the first that is unknown ends it."""
    looked: list[str] = []
    monkeypatch.setattr(QueryParams, "getlist", lambda _, name: looked.append(name))
    answer = await desk.ask("GET", "/events", query="&".join(f"p{n}=" for n in range(5000)))
    assert (answer.status, answer.json["error"], looked) == (400, "malformed", [])


ODD_QUERIES = (
    "source=%ff%fe", "key=%ed%a0%80", "text=%F0%9F%98%80", "since=0001-01-01T00:00:00%2B14:00", "type=*", "type=**",
    "until=9999-12-31T23:59:59.999999-14:00", "source=%25%27%22%5C_", "object_id=" + "x" * 5000, "error=%5C%25",
)  # fmt: skip


async def test_malformed_queries_have_an_answer(desk: Desk) -> None:
    for path, query in product(("/events", "/events-count"), ODD_QUERIES):
        assert (await desk.ask("GET", path, query=query)).status in (200, 400, 422), query


REFERENCES = (
    "a\0b", "\udc80", "\ud800x", "~", "x~2", "a\0~2", "\udcff~1", "\u2028", "x" * 10_000, "%", "'; --", "00000000",
    "f" * 32, "\U0001f600",
)  # fmt: skip
NAMED = (
    "/events/{}", "/events/{}/preview", "/quarantine/{}", "/rejections/{}", "/sources/{}/keys", "/providers/{}",
)  # fmt: skip


async def test_malformed_references(desk: Desk) -> None:
    for path, reference in product(NAMED, REFERENCES):
        assert (await desk.ask("GET", path.format(reference))).status in (400, 404, 422), (path, reference)


async def test_unusual_names_of_a_downstream(desk: Desk) -> None:
    for name in ("a\0b", "\udc80", " "):
        answer = await desk.ask("POST", f"/circuits/{name}/trip", {"reason": "x"})
        assert answer.status in (404, 422), answer.body


# ── when things are not as they should be ──


async def test_without_the_database(postgres_server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    async with desk_on(postgres_server.create_database("away"), past=False) as desk:
        shown = await failed(desk)
        await asyncio.to_thread(postgres_server.stop, "immediate")
        path = f"/events/{shown['event']['id']}/retry"
        for answer in (await desk.ask("GET", "/events"), await desk.ask("POST", path, decided(shown))):
            assert (answer.status, answer.json["error"]) == (503, "unavailable"), answer.body
            assert int(answer.headers["retry-after"]) > 0
        assert caplog.text.count("API answered 503 (unavailable): Unavailable from ") == 2
        assert (await desk.ask("GET", "/events", role=None)).status == 401
        assert (await ask(desk.inbox.operator, "GET", "/healthz")).status == 200


@pytest.mark.unmigrated
async def test_before_migrate(sqlite_url: str) -> None:
    inbox = make_inbox(sqlite_url)
    pairs = [("authorization", f"Bearer {TOKENS['viewer']}")]
    try:
        assert (await ask(inbox.operator, "GET", "/api/v1/events", b"", pairs)).status == 503
        assert (await ask(inbox.operator, "GET", "/readyz")).status == 503
    finally:
        await inbox.operator.stop()


class Line(msgspec.Struct):
    number: int


async def slow(asked: Look) -> Line:
    """Never ends."""
    del asked
    await asyncio.sleep(3600)
    return Line(0)


async def broken(asked: Look) -> Line:
    """Fails."""
    raise RuntimeError(f"with the payload of {asked.caller.name}")


def made_up(desk: Desk, *calls: Call) -> Api:
    async def context() -> Context:
        return (await desk.inbox.operator.start())[0]

    return Api(desk.inbox.operator.tokens, context, calls)


async def test_a_call_may_fail_or_take_too_long(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    api = made_up(
        desk,
        Call("GET", "/slow", Role.VIEWER, slow, seconds=0.01),
        Call("GET", "/broken", Role.VIEWER, broken),
    )
    pairs = [("authorization", f"Bearer {TOKENS['viewer']}")]
    assert (await ask(api, "GET", "/api/v1/slow")).status == 401
    answer = await ask(api, "GET", "/api/v1/slow", b"", pairs)
    assert (answer.status, answer.json["error"]) == (503, "too_slow")
    answer = await ask(api, "GET", "/api/v1/broken", b"", pairs)
    assert (answer.status, answer.json["error"]) == (500, "failed")
    assert "payload" not in answer.json["message"] + caplog.text
    assert "RuntimeError" in caplog.text


async def test_mounted_below_another_path(desk: Desk) -> None:
    pairs = [("authorization", f"Bearer {TOKENS['viewer']}")]
    answer = await ask(desk.inbox.operator, "GET", "/api/v1/summary", b"", pairs, root="/inbox")
    assert answer.status == 200
    assert (await ask(desk.inbox.operator, "GET", "/readyz", root="/inbox")).status == 200


async def test_it_is_described(desk: Desk) -> None:
    described = (await desk.ask("GET", "/openapi.json", role="viewer")).json
    assert described["openapi"].startswith("3.1")
    told = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert told == {(call.method, call.path) for call in CALLS}
    for methods in described["paths"].values():
        for operation in methods.values():
            assert {"401", "403", "503"} <= set(operation["responses"])
            assert "Needs the role" in operation["description"]
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
