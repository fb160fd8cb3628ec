"""Stages on the command line and in the API: listed, named by EVENT/STAGE, replayed, added."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hookledger.cli import exits
from hookledger.ids import stage_id
from hookledger.model import Kind
from hookledger.states import State
from tests.builders import Way, claim, claimed, event, history, settle
from tests.operators import Desk, desk_on
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.path.test_cli_effects import BOOK, arrive

APP = """
from hookledger import Event, Inbox, Permanent

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])

@stripe.on("invoice.paid", stage="finance")
async def finance(event: Event) -> None:
    if event.attempt == 1 and event.run == 1:
        raise Permanent("the ledger is closed")

@stripe.on("invoice.paid", stage="provision")
async def provision(event: Event) -> str:
    return f"run {event.run}"
"""
MAIL = """
@stripe.on("invoice.paid", stage="mail")
async def mail(event: Event) -> str:
    return "sent"
"""


@pytest.fixture
def billing(tmp_path: Path, shop: Run, environment: dict[str, str]) -> Run:  # noqa: F811
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "book.py").write_text(BOOK)
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    return shop


def state(billing: Run, reference: str) -> str:
    shown = billing("show", reference, "--json")
    assert shown.returncode == exits.OK, shown.stderr
    found: str = json.loads(shown.stdout)["event"]["state"]
    return found


def test_stages_are_listed_and_decided_one_by_one(
    billing: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    assert billing("work", "--drain").returncode == exits.OK
    shown = billing("show", "evt_1")
    assert "Stages" in shown.stdout
    assert "the ledger is closed" in shown.stdout
    assert "pending or uncertain?  stage finance (failed)" in shown.stdout
    assert "/finance" in shown.stderr
    found = json.loads(billing("show", "evt_1", "--json").stdout)
    assert [(row["stage"], row["state"]) for row in found["stages"]] == [
        ("finance", "failed"),
        ("provision", "processed"),
    ]
    assert "not replayed with it: finance, provision" in " ".join(found["replay"]["reasons"])
    assert "finance of event" in billing("show", "evt_1/finance").stdout
    assert state(billing, "evt_1/finance") == "failed"
    assert billing("retry", "evt_1/finance", "--reason", "open").returncode == exits.OK
    assert state(billing, "evt_1/finance") == "pending"
    assert billing("discard", "evt_1/finance", "--reason", "done by hand").returncode == exits.OK
    assert billing("replay", "evt_1", "--stage", "provision", "--reason", "again").returncode == exits.OK
    assert billing("work", "--drain").returncode == exits.OK
    again = json.loads(billing("show", "evt_1/provision", "--json").stdout)["event"]
    assert (again["run"], again["result"]) == (2, "run 2")
    assert state(billing, "evt_1/finance") == "discarded"
    assert billing("replay", "evt_1", "--dry-run", "--yes").returncode != exits.OK
    assert billing("replay", "evt_1/provision", "--dry-run", "--yes").returncode == exits.OK


def test_a_stage_is_added_to_events_that_lack_it(
    billing: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    for number in (1, 2, 3):
        arrive(tmp_path, environment, f"evt_{number}=invoice.paid")
    assert billing("work", "--drain").returncode == exits.OK
    (tmp_path / "shop.py").write_text(APP + MAIL)
    lacking = ("--source", "stripe", "--lacks-stage", "mail")

    def lack() -> list[str]:
        return sorted(row["key"] for row in json.loads(billing("events", *lacking, "--json").stdout))

    assert lack() == ["evt_1", "evt_2", "evt_3"]
    assert billing("events", "--lacks-stage", "mail").returncode == exits.CONFIG
    asked = billing("replay", "evt_1", "--stage", "mail", "--preview")
    assert (asked.returncode, "has no stage 'mail'" in asked.stderr) == (exits.USAGE, True)
    unknown = billing("replay", "evt_1", "--stage", "sms", "--reason", "new")
    assert unknown.returncode == exits.CONFIG
    assert "in stage 'sms'" in " ".join(unknown.stderr.split())
    assert billing("replay", "evt_1", "--stage", "mail", "--reason", "new").returncode == exits.OK
    assert lack() == ["evt_2", "evt_3"]
    for name in ("a/b", "mail\n", "x" * 65, "é"):
        for command in (("replay", "evt_1", "--stage"), ("events", "--source", "stripe", "--lacks-stage")):
            wrong = billing(*command, name, *(("--reason", "new") if command[0] == "replay" else ()))
            assert wrong.returncode == exits.CONFIG, (name, wrong.stderr)
            assert "cannot name a stage" in " ".join(wrong.stderr.split())
    bulk = billing("bulk", "replay", *lacking, "--count", "2", "--reason", "new", "--detach")
    assert bulk.returncode == exits.OK, bulk.stderr
    [job] = json.loads(billing("jobs", "list", "--json").stdout)
    assert billing("jobs", "run", job["id"]).returncode == exits.OK
    assert lack() == []
    assert billing("work", "--drain").returncode == exits.OK
    assert {state(billing, f"evt_{number}/mail") for number in (1, 2, 3)} == {"processed"}
    assert billing("bulk", "retry", *lacking, "--count", "2", "--reason", "new").returncode == exits.CONFIG
    told = " ".join(billing("doctor").stdout.split())
    assert "3 events (3 processed); 9 stages (3 failed, 6 processed)" in told
    assert "all accounted for" in told


def test_a_pause_of_the_source_says_that_its_stages_run(billing: Run) -> None:
    told = billing("pause", "stripe", "--reason", "look")
    assert "not paused: stripe/finance, stripe/provision." in " ".join(told.stderr.split()), told
    told = billing("pause", "stripe/finance", "--reason", "look")
    assert "not paused" not in told.stderr
    assert billing("pause", "stripe/a/b", "--reason", "look").returncode == exits.CONFIG
    told = billing("pause", "stripe", "invoice.*", "--reason", "look")
    assert "not paused: stripe/provision." in " ".join(told.stderr.split()), told
    assert [row["source"] for row in json.loads(billing("pause", "--list", "--json").stdout)] == [
        "stripe",
        "stripe",
        "stripe/finance",
    ]


# ── the API ──


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    async with desk_on(database_url, past=False) as made:
        yield made


async def test_the_api_knows_stages(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    assert await settle(desk.store, owner, "complete", stages=("finance",))
    shown = (await desk.ask("GET", "/events/evt_1", role="viewer")).json
    [stage] = shown["stages"]
    answers = (await desk.ask("GET", "/events/evt_1/answers", role="viewer")).json
    assert answers["open_stages"] == [{"stage": "finance", "state": "pending"}]
    assert (stage["stage"], stage["state"], stage["parent"]) == ("finance", "pending", str(owner.id))
    assert (await desk.ask("GET", f"/events/{stage['id']}")).json["event"]["source"] == "stripe/finance"
    lacking = {"source": "stripe", "lacks_stage": "mail"}
    assert [row["key"] for row in (await desk.ask("GET", "/events", query=lacking)).json["events"]] == ["evt_1"]
    assert (await desk.ask("GET", "/events", query={"lacks_stage": "mail"})).status == 422
    expected = {"state": shown["event"]["state"], "claim": shown["event"]["claim"]}
    body = {"reason": "new", "expected": expected, "stage": "mail"}
    added = await desk.ask("POST", "/events/evt_1/replay", body)
    assert (added.status, added.json["stage"], added.json["state"]) == (200, "mail", "pending")
    assert (await desk.ask("POST", "/events/evt_1/replay", body)).status == 409
    paused = await desk.ask("POST", "/sources/stripe/pause", {"reason": "wait", "stage": "mail"})
    assert [pause["source"] for pause in paused.json["pauses"]] == ["stripe/mail"]
    assert await desk.store.waiting() != []
    assert [w.kind.source for w in await desk.store.waiting()] == ["stripe/finance"]
    assert (await desk.ask("POST", "/sources/stripe/resume", {"reason": "go", "stage": "mail"})).json["pauses"] == []


async def test_the_api_decides_about_a_stage_by_its_id(desk: Desk) -> None:
    """A path has no place for EVENT/STAGE; the stage's own id does all that an event's does, and nothing to the event
    or to another stage."""
    owner = await claimed(desk.store, "evt_1")
    assert await settle(desk.store, owner, "complete", stages=("finance", "mail"))
    shown = (await desk.ask("GET", "/events/evt_1")).json
    ids = {row["stage"]: row["id"] for row in shown["stages"]}
    assert ids == {name: str(stage_id(owner.id, name)) for name in ("finance", "mail")}
    finance = f"/events/{ids['finance']}"
    assert (await desk.ask("GET", "/events/evt_1/finance")).status == 404
    assert (await desk.ask("GET", "/events/evt_1%2Ffinance")).status == 404

    async def end(way: Way, **other: Any) -> None:
        stage = await claim(desk.store, Kind("stripe/finance", owner.type))
        assert await settle(desk.store, stage, way, **other)

    async def decide(action: str) -> dict[str, Any]:
        now = (await desk.ask("GET", finance)).json["event"]
        body = {"reason": "looked at it", "expected": {"state": now["state"], "claim": now["claim"]}}
        answer = await desk.ask("POST", f"{finance}/{action}", body)
        assert answer.status == 200, (action, answer.body)
        found: dict[str, Any] = (await desk.ask("GET", finance)).json["event"]
        return found

    await end("fail", reason="the ledger is closed")
    assert (await decide("retry"))["state"] == "pending"
    await end("review", reason="a cancelled account")
    approved = await decide("approve")
    assert (approved["state"], approved["run"], approved["stage"]) == ("pending", 2, "finance")
    await end("complete")
    preview = (await desk.ask("GET", f"{finance}/preview")).json
    assert preview["verdict"] != "needs a decision"
    assert (await decide("replay"))["run"] == 3
    await end("review", reason="a cancelled account")
    assert (await decide("settle"))["state"] == "processed"
    assert (await decide("replay"))["state"] == "pending"
    assert (await decide("discard"))["state"] == "discarded"
    entries = (await desk.ask("GET", f"{finance}/timeline")).json["entries"]
    assert len([entry for entry in entries if entry["kind"] == "action"]) == 6
    after = (await desk.ask("GET", "/events/evt_1")).json
    assert after["event"] == shown["event"]
    assert [row for row in after["stages"] if row["stage"] == "mail"] == [
        row for row in shown["stages"] if row["stage"] == "mail"
    ]


@pytest.mark.parametrize("name", ["a/b", "mail\n", "", "x" * 65, "..\n"])
async def test_the_api_rejects_what_cannot_name_a_stage(desk: Desk, name: str) -> None:
    owner = await claimed(desk.store, "evt_1")
    assert await settle(desk.store, owner, "complete")
    row = await event(desk.store, owner.id)
    expected = {"state": row.state, "claim": row.claim}
    replayed = {"reason": "new", "expected": expected, "stage": name}
    answers = [
        await desk.ask("POST", "/events/evt_1/replay", replayed),
        await desk.ask("GET", "/events", query={"source": "stripe", "lacks_stage": name}),
        await desk.ask("POST", "/sources/stripe/pause", {"reason": "wait", "stage": name}),
    ]
    assert {answer.status for answer in answers} <= {400, 422}
    assert ((await history(desk.store, owner.id)).stages, await desk.store.pauses.pauses()) == ((), [])


async def test_a_viewer_sees_no_errors_of_stages(desk: Desk) -> None:
    owner = await claimed(desk.store, "evt_1")
    assert await settle(desk.store, owner, "complete", stages=("finance",))
    stage = await claim(desk.store, Kind("stripe/finance", owner.type))
    await settle(desk.store, stage, "fail", reason="ValueError: Ada's card", error="ValueError: Ada's card")
    assert (await event(desk.store, stage_id(owner.id, "finance"))).state is State.FAILED
    for role, seen in (("viewer", False), ("operator", True)):
        assert ("Ada" in (await desk.ask("GET", "/events/evt_1", role=role)).body.decode()) is seen, role
