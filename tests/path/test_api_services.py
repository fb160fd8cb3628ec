"""The API's calls for bulk work, pauses, comparisons and what is kept."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hookledger import Changed, Event, Listed
from hookledger.ledger import Completion
from hookledger.operate.api import retention
from hookledger.operate.bulk.runner import JobRunner
from hookledger.states import CallOutcome, EffectKind, State
from hookledger.store.sqlite.session import SqliteDatabase
from tests.asgi_client import stripe_event
from tests.builders import KIND, claimed, reach, recorded, settle
from tests.ledger import intent, start
from tests.operators import SETTINGS, Desk, desk_on, make_inbox

WHY = {"reason": "because"}


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    async with desk_on(database_url, past=False) as made:
        yield made


def seen(event: Any) -> dict[str, Any]:
    return {"state": event.state, "claim": event.claim}


# ── reading ──


async def test_a_page_says_how_far_the_search_came(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        await recorded(desk.store, f"evt_{number}", b"the first" if number == 0 else b"%d" % number)
    monkeypatch.setattr("hookledger.store.ops.search.SHORT_STRETCH", 5)
    query: dict[str, Any] = {"text": "the first", "limit": 1}
    found, pages = [], 0
    while pages == 0 or query["before"]:
        page = (await desk.ask("GET", "/events", query=query)).json
        found += [row["key"] for row in page["events"]]
        assert page["events"] or page["next"] is None or page["looked_at"] > 0
        query["before"], pages = page["next"], pages + 1
    assert (found, pages > 1) == (["evt_0"], True)


async def test_by_cause_and_effect(desk: Desk) -> None:
    event = await reach(desk.store, State.FAILED, KIND)
    [group] = (await desk.ask("GET", "/failures")).json["failures"]
    assert (group["count"], group["sample"]) == (1, str(event.id))
    owner = await claimed(desk.store, "evt_2")
    await start(desk.store, owner, "mail-1", name="mail")
    for query, ident in (({"cause": group["cause"]}, event.id), ({"effect": "mail:mail-1"}, owner.id)):
        [row] = (await desk.ask("GET", "/events", query=query)).json["events"]
        assert row["id"] == str(ident)
    [lag] = (await desk.ask("GET", "/lag", role="viewer")).json["lag"]
    assert lag["processing"] == 1


# proves R50
async def test_its_history_and_evidence(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    await start(desk.store, owner, "mail-1", name="mail")
    identity = intent(owner, "mail-1", name="mail", kind=EffectKind.CALL).identity
    await desk.store.ledger.finish([Completion(identity, 1, CallOutcome.UNKNOWN, None, "of the customer: time-out")])
    await settle(desk.store, owner, "review", error="Traceback: of the customer")
    story = await desk.ask("GET", "/events/evt_1/timeline")
    assert b"of the customer: time-out" in story.body
    assert [entry["kind"] for entry in story.json["entries"]][:2] == ["delivery", "authentication"]
    viewed = await desk.ask("GET", "/events/evt_1/timeline", role="viewer")
    assert (b"of the customer" in viewed.body, viewed.json["complete"]) == (False, False)
    assert len(viewed.json["entries"]) == len(story.json["entries"])
    answers = await desk.ask("GET", "/events/evt_1/answers", role="viewer")
    assert b"of the customer" not in answers.body
    assert (answers.json["deliveries"], answers.json["attempts"]["ended"]) == (1, 1)
    assert [one["label"] for one in answers.json["open"]] == ["mail:mail-1"]
    assert answers.json["verdict"] == "needs a decision"


# ── bulk work and pauses ──


async def test_a_job(desk: Desk) -> None:
    events = [await reach(desk.store, State.FAILED, KIND) for _ in range(3)]
    preview = (await desk.ask("GET", "/jobs-preview", role="viewer", query={"name": "retry"})).json
    assert (preview["count"], preview["allowed"]) == (3, 3)
    new = {"name": "retry", "where": {"text": "{"}, "count": 2, "reason": "mended", "per_second": 0}
    before = await desk.snapshot()
    answer = await desk.ask("POST", "/jobs", new)
    assert (answer.status, answer.json["error"]) == (409, "conflict"), "somebody agreed to another number"
    assert await desk.snapshot() == before
    job = (await desk.ask("POST", "/jobs", {**new, "count": 3})).json
    assert (job["total"], job["open"], job["actor"]) == (3, 3, "operator-ada")
    path = f"/jobs/{job['id']}"
    assert await JobRunner(desk.inbox.context(desk.store)).run_one(UUID(job["id"]))
    shown = (await desk.ask("GET", f"/jobs/{job['id'][:18]}", role="viewer")).json
    assert (shown["job"]["done"], shown["job"]["not_allowed"], shown["job"]["open"]) == (3, 0, 0)
    assert shown["job"]["where"] is None, "a viewer may not look for that, either"
    [listed] = (await desk.ask("GET", "/jobs")).json["jobs"]
    assert (listed["where"]["text"], listed["state"]) == ("{", "done")
    page = (await desk.ask("GET", f"{path}/items", role="viewer", query={"limit": 2, "outcome": "done"})).json
    query = {"limit": 2, "after": page["next"]}
    page["items"] += (await desk.ask("GET", f"{path}/items", query=query)).json["items"]
    assert [item["event_id"] for item in page["items"]] == sorted(str(event.id) for event in events)
    assert (await desk.ask("POST", f"{path}/cancel", WHY)).status == 409, "it is over"
    job = (await desk.ask("POST", "/jobs", {**new, "name": "discard", "count": 3})).json
    cancelled = (await desk.ask("POST", f"/jobs/{job['id']}/cancel", WHY)).json
    assert (cancelled["state"], cancelled["cancelled_by"], cancelled["done"]) == ("cancelled", "operator-ada", 0)
    for reference in ("0", "zz", "'", "f" * 36, "\U0001f600"):
        assert (await desk.ask("GET", f"/jobs/{reference}")).status in (400, 404), reference


async def test_a_job_that_resolves(desk: Desk) -> None:
    for number in range(3):
        owner = await claimed(desk.store, f"evt_{number}")
        for key in ("a", "b"):
            started = await start(desk.store, owner, f"{key}{number}", name="mail")
            await desk.store.ledger.finish([Completion(started.identity, 1, CallOutcome.UNKNOWN)])
        await settle(desk.store, owner, "review")
    query = {"name": "resolve", "resolves": "mail", "decision": "did_not_happen"}
    preview = (await desk.ask("GET", "/jobs-preview", role="viewer", query=query)).json
    assert (preview["count"], preview["effects"]) == (3, 6)
    assert "same idempotency key" in preview["consequence"]
    resolving = {"effect": "mail", "decision": "did_not_happen"}
    new = {"name": "resolve", "where": {}, "count": 3, "per_second": 0, "resolving": resolving, **WHY}
    before = await desk.snapshot()
    for wrong, status in (
        ({}, 409),  # it is six effects
        ({"resolving": None}, 422),
        ({"name": "retry"}, 422),
        ({"resolving": {"effect": "mail", "decision": "cancel"}}, 400),
        ({"resolving": {"effect": "mail"}}, 400),
        ({"resolving": {"effect": "", "decision": "happened"}}, 400),
        ({"count": 6, "where": {"effect": "mail:a0"}}, 422),  # it has another one of that name
        ({"count": 6, "fingerprint": "0" * 16}, 409),
        ({"name": "retry", "resolving": None, "fingerprint": "0" * 16}, 422),
    ):
        assert (await desk.ask("POST", "/jobs", {**new, **wrong})).status == status, wrong
    for half in ({"resolves": "mail"}, {"decision": "happened"}, {}, {"resolves": "", "decision": "happened"}):
        answer = await desk.ask("GET", "/jobs-preview", query={"name": "resolve", **half})
        assert answer.status in (400, 422), half
    assert await desk.snapshot() == before
    assert (await desk.ask("POST", "/jobs", {**new, "count": 6}, role="viewer")).status == 403
    seen = {"count": 6, "fingerprint": preview["fingerprint"]}
    job = (await desk.ask("POST", "/jobs", {**new, **seen})).json
    assert (job["total"], job["effects"], job["resolving"]) == (3, 6, resolving)
    assert await JobRunner(desk.inbox.context(desk.store)).run_one(UUID(job["id"]))
    shown = (await desk.ask("GET", f"/jobs/{job['id']}", role="viewer")).json
    assert (shown["job"]["done"], shown["job"]["not_allowed"], shown["causes"]) == (3, 0, [])
    event = (await desk.ask("GET", "/events/evt_1")).json
    assert (event["event"]["state"], {effect["state"] for effect in event["effects"]}) == ("pending", {"planned"})


@pytest.mark.parametrize("name", ["text", "error"])
async def test_a_viewer_cannot_foresee_what_it_may_not_search(desk: Desk, name: str) -> None:
    query = {"name": "retry", name: "x"}
    assert (await desk.ask("GET", "/jobs-preview", role="viewer", query=query)).status == 403
    assert (await desk.ask("GET", "/jobs-preview", query=query)).status == 200


async def test_pauses(desk: Desk) -> None:
    path = "/sources/stripe"
    [made] = (await desk.ask("POST", f"{path}/pause", {**WHY, "type": "invoice.*"})).json["pauses"]
    assert (made["pattern"], made["actor"]) == ("invoice.*", "operator-ada")
    assert len((await desk.ask("POST", f"{path}/pause", WHY)).json["pauses"]) == 2
    listed = (await desk.ask("GET", "/pauses", role="viewer")).json["pauses"]
    assert [one["source"] for one in listed] == ["stripe", "stripe"]
    [left] = (await desk.ask("POST", f"{path}/resume", WHY)).json["pauses"]
    assert left["pattern"] == "invoice.*"
    assert (await desk.ask("POST", f"{path}/resume", WHY)).status == 409, "it is not paused"
    assert (await desk.ask("POST", "/sources/none/pause", WHY)).status == 404
    for pattern in ("", "a*b", "**", "a\0"):
        assert (await desk.ask("POST", f"{path}/pause", {**WHY, "type": pattern})).status == 400, pattern


# ── the provider's side ──


async def test_reconcile_and_repair(database_url: str) -> None:
    async with desk_on(database_url, past=False) as desk:
        source = desk.inbox.sources["stripe"]
        broken = False

        @source.lister
        async def events(since: datetime, until: datetime) -> AsyncIterator[Listed | Changed]:
            if broken:
                raise RuntimeError("the answer was: secret of the provider")
            body = json.dumps(stripe_event("evt_1")).encode()
            yield Listed(id="evt_1", at=datetime.now(UTC), body=body)

        @source.repair
        async def repaired(event: Event) -> None: ...

        path = "/sources/stripe/reconcile"
        before = await desk.snapshot()
        dry = (await desk.ask("POST", path, {**WHY, "dry_run": True})).json
        assert ([one["words"] for one in dry["differences"]], dry["dry_run"]) == (["would be imported"], True)
        assert await desk.snapshot() == before
        report = (await desk.ask("POST", path, {**WHY, "since": "2026-01-01T00:00:00Z"})).json
        assert (report["counts"]["imported"], report["problem"]) == (1, None)
        assert (await desk.ask("POST", path, WHY)).json["counts"]["matched"] == 1, "a second time it is known"
        assert (await desk.ask("GET", "/events/evt_1")).status == 200
        broken = True
        assert "secret" in (await desk.ask("POST", path, WHY)).json["problem"]
        [last] = (await desk.ask("GET", "/reconciliations", role="viewer")).json["reconciliations"]
        assert (last["problem"], last["actor"]) == ("for operators", "operator-ada")
        assert b"secret" in (await desk.ask("GET", "/reconciliations")).body
        window = {"since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}
        for wrong in (window, {"since": "0001-01-01T00:00:00Z"}, {"until": "9999-12-31T23:59:59Z"}, {"since": "x"}):
            assert (await desk.ask("POST", path, {**WHY, **wrong})).status in (400, 422), wrong
        assert (await desk.ask("POST", "/sources/github/reconcile", WHY)).status == 422, "nobody lists its events"
        assert (await desk.ask("POST", "/sources/none/reconcile", WHY)).status == 404
        made = (await desk.ask("POST", "/sources/stripe/repair", {**WHY, "object_id": "in_1"})).json
        assert (made["state"], made["object_id"]) == ("pending", "in_1")
        again = await desk.ask("POST", "/sources/stripe/repair", {**WHY, "object_id": "in_1"})
        assert again.status == 409, "one is still to come"
        assert (await desk.ask("POST", "/events/evt_1/repair", WHY)).status in (200, 409)
        assert (await desk.ask("POST", "/sources/stripe/repair", {**WHY, "object_id": "a\nb"})).status == 422


# ── what is kept ──


@pytest.fixture
async def tidy(database_url: str) -> AsyncIterator[Desk]:
    """Where finished events are not kept, and one of them is there."""
    inbox = make_inbox(database_url, {**SETTINGS, "retention": {"events": "0s", "batch_delay": "0s"}})
    await inbox.migrate()
    async with inbox.opened(handlers=2) as store:
        await store.know_sources(list(inbox.sources))
        await reach(store, State.PROCESSED, KIND)
        await reach(store, State.FAILED, KIND)
        try:
            yield Desk(inbox, store)
        finally:
            await inbox.operator.stop()


async def test_prune(tidy: Desk) -> None:
    before = await tidy.snapshot()
    due = (await tidy.ask("GET", "/prune")).json
    assert (due["events"], due["finished"]) == (1, True)
    assert (await tidy.ask("POST", "/prune", {**WHY, "source": "none"}, role="admin")).status == 404
    assert (await tidy.ask("POST", "/prune", {**WHY, "source": "github"}, role="admin")).json["events"] == 0
    assert await tidy.snapshot() == before
    done = (await tidy.ask("POST", "/prune", WHY, role="admin")).json
    assert (done["events"], done["finished"]) == (1, True)
    after = await tidy.snapshot()
    assert (len(after["events"]), len(after["pruned"])) == (1, 1)
    assert any("admin-ada" in row for row in after["actions"])


async def test_a_round_that_takes_too_long_says_so(tidy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROUND", 0.0)
    answer = await tidy.ask("POST", "/prune", WHY, role="admin")
    assert (answer.status, answer.json["finished"]) == (200, False)
    monkeypatch.undo()
    assert (await tidy.ask("POST", "/prune", WHY, role="admin")).json["finished"], "the turn was given back"


async def test_erase(desk: Desk) -> None:
    event = await reach(desk.store, State.PROCESSED, KIND)
    path, body = f"/events/{event.id}/erase", {**WHY, "expected": seen(event)}
    before = await desk.snapshot()
    assert (await desk.ask("POST", path, WHY, role="admin")).status == 422, "on what was it decided?"
    stale = {**WHY, "expected": {"state": event.state, "claim": event.claim + 1}}
    assert (await desk.ask("POST", path, stale, role="admin")).status == 409
    dry = (await desk.ask("POST", path, {**body, "dry_run": True}, role="admin")).json
    assert dry["events"] == [str(event.id)]
    assert await desk.snapshot() == before
    done = (await desk.ask("POST", path, body, role="admin")).json
    assert (done["events"], done["requests"]) == ([str(event.id)], 1)
    assert (await desk.ask("GET", f"/events/{event.id}/request")).json.get("body", "") == ""


async def test_erase_by_a_filter(desk: Desk) -> None:
    done = [await reach(desk.store, State.PROCESSED, KIND) for _ in range(2)]
    waits = await recorded(desk.store, "evt_waiting")
    before = await desk.snapshot()
    for body, status in (
        ({"where": {}, "count": 3}, 422),
        ({"where": {"source": "stripe"}, "count": 2}, 409),
        ({"where": {"source": "stripe"}}, 400),
        ({"where": {"source": ""}, "count": 3}, 400),
    ):
        assert (await desk.ask("POST", "/erase", {**WHY, **body}, role="admin")).status == status, body
    assert await desk.snapshot() == before
    body = {**WHY, "where": {"source": "stripe"}, "count": 3}
    answer = (await desk.ask("POST", "/erase", body, role="admin")).json
    assert set(answer["events"]) == {str(event.id) for event in done}
    assert list(answer["not_allowed"]) == [str(waits)]


async def test_what_is_not_waited_for_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite a search runs in a thread, which nobody can cancel: it is told."""
    async with desk_on(f"sqlite:///{tmp_path}/other.db", past=False) as other:
        database = other.store.search._database
        assert isinstance(database, SqliteDatabase)
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        ended = asyncio.Event()
        loop, scan = asyncio.get_running_loop(), database._scan

        def watched(*args: Any) -> Any:
            try:
                return scan(*args)
            finally:
                loop.call_soon_threadsafe(ended.set)

        monkeypatch.setattr(database, "_scan", watched)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await database.scan(lambda db: db.run(endless, {}), 600.0)
        await asyncio.wait_for(ended.wait(), 60.0)
