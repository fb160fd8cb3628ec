"""`resolve`, `circuits` and what `show` prints of effects: real processes."""

import json
from pathlib import Path

import pytest

from hookledger.cli import exits
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.services import forked

APP = """
from pathlib import Path
from hookledger import Event, Inbox, Op, RetryPolicy

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])
quick = RetryPolicy(initial_delay="10ms", max_delay="10ms", attempts=3)

def broken() -> None:
    with Path("calls.txt").open("a") as file:
        print("called", file=file)
    if Path("broken").exists():
        raise TimeoutError("no answer")

@inbox.effect(repeat="never", downstream="bank")
async def charge(op: Op, cents: int) -> str:
    broken()
    return "ch_1"

@inbox.effect(repeat="never", retry=quick)
async def post(op: Op, to: str) -> None:
    broken()

@stripe.on("invoice.paid", retry=quick)
async def paid(event: Event) -> str:
    return await event.call(charge, event.key, cents=5)

@stripe.on("invoice.sent")
async def sent(event: Event) -> None:
    await event.later(post, event.key, to="a@example.test")
"""

BOOK = """
import asyncio, sys
sys.path.insert(0, ".")
from shop import inbox
from tests.builders import recorded

async def main() -> None:
    async with inbox.opened() as store:
        await store.know_sources(["stripe"])
        for key, kind in (pair.split("=") for pair in sys.argv[1:]):
            if key == "live":  # a worker that was seen just now
                await store.register("w", [("stripe", "invoice.*")])
            else:
                await recorded(store, key, type=kind)

inbox.database = "sqlite:///shop.db"
asyncio.run(main())
"""


@pytest.fixture
def store(tmp_path: Path, shop: Run, environment: dict[str, str]) -> Run:  # noqa: F811
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "book.py").write_text(BOOK)
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    return shop


def arrive(folder: Path, environment: dict[str, str], *pairs: str) -> None:  # noqa: F811
    forked.run("book", pairs, cwd=folder, env=environment, folder=folder).check_returncode()


def calls(folder: Path) -> int:
    file = folder / "calls.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_an_operator_decides(store: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.paid", "evt_2=invoice.paid", "evt_3=invoice.sent")
    (tmp_path / "broken").touch()
    assert store("work", "--drain").returncode == exits.OK
    assert calls(tmp_path) == 3
    shown = store("show", "evt_1").stdout
    for words in ("needs_review", "call, never", "unknown", "TimeoutError: no answer", "attention"):
        assert words in shown
    listed = store("events").stdout
    assert "processed !" in listed, "the outbox is in trouble, the event is done"
    groups = {group["effect"]: group for group in json.loads(store("failures", "--json").stdout)}
    assert groups["post"]["cause"] == "effect post is unknown: TimeoutError: no answer"
    assert groups[None]["count"] == 2, "they have causes of their own"

    (tmp_path / "broken").unlink()
    formless = store("resolve", "evt_1", "charge", "--happened", "--reason", "saw it")
    assert formless.returncode == exits.CONFIG
    assert """--result '"text"'""" in formless.stderr, "the handler reads it: its form is told"
    assert json.loads(store("show", "evt_1", "--json").stdout)["event"]["state"] == "needs_review", "nothing is done"
    resolved = store("resolve", "evt_1", "charge", "--happened", "--result", '"ch_9"', "--reason", "saw it")
    assert resolved.returncode == exits.OK, resolved.stderr
    assert "was unknown, is done" in resolved.stderr
    answer = store("resolve", "evt_2", "charge:evt_2", "--did-not-happen", "--reason", "not there", "--json")
    assert json.loads(answer.stdout)["event"]["state"] == "pending"
    assert store("resolve", "evt_3", "post", "--did-not-happen", "--reason", "not there").returncode == exits.OK
    assert store("work", "--drain").returncode == exits.OK
    assert calls(tmp_path) == 5, "one each for what did not happen"
    results = {key: json.loads(store("show", key, "--json").stdout) for key in ("evt_1", "evt_2", "evt_3")}
    assert [value["event"]["state"] for value in results.values()] == ["processed"] * 3
    assert [value["event"]["result"] for value in results.values()] == ["ch_9", "ch_1", None]
    assert not any(value["event"]["attention"] for value in results.values())
    assert [action["name"] for action in results["evt_1"]["actions"]] == ["resolve", "retry"]
    assert results["evt_3"]["actions"][0]["subject"] == "post:evt_3"
    keys = {known["effect"]["idempotency_key"] for value in results.values() for known in value["effects"]}
    assert len(keys) == 3, "what a script needs to search the remote for"


def test_a_result_is_asked_for_without_the_application(
    store: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    arrive(tmp_path, environment, "evt_1=invoice.paid", "evt_2=invoice.paid", "evt_3=invoice.sent")
    (tmp_path / "broken").touch()
    assert store("work", "--drain").returncode == exits.OK
    (tmp_path / "broken").unlink()
    happened, alone = ("--happened", "--reason", "saw it"), {"HOOKLEDGER_APP": ""}
    shown = store("show", "evt_1", **alone).stderr
    assert "--happened --result RESULT" in shown, "what is suggested is accepted"
    assert "--app" in shown
    unknown = store("resolve", "evt_1", "charge", *happened, **alone)
    assert unknown.returncode == exits.CONFIG
    assert "--app" in unknown.stderr
    assert "--result null" in unknown.stderr
    assert json.loads(store("show", "evt_1", "--json").stdout)["event"]["state"] == "needs_review", "nothing is done"
    assert store("resolve", "evt_3", "post", *happened, **alone).returncode == exits.OK, "no handler reads it"

    assert store("resolve", "evt_2", "charge", *happened, "--result", "null", **alone).returncode == exits.OK
    assert store("work", "--drain").returncode == exits.OK
    event = json.loads(store("show", "evt_2", "--json").stdout)["event"]
    assert event["state"] == "failed"
    correct = f"hookledger resolve {event['id']} charge:evt_2 --happened --result RESULT"
    assert correct in event["reason"]
    assert 'JSON of this form: "text"' in event["reason"]
    assert store("resolve", event["id"], "charge:evt_2", *happened, "--result", '"ch_2"').returncode == exits.OK
    assert store("retry", "evt_2", "--reason", "the result is right now").returncode == exits.OK
    assert store("work", "--drain").returncode == exits.OK
    assert json.loads(store("show", "evt_2", "--json").stdout)["event"]["result"] == "ch_2"


def test_a_result_of_another_type_is_refused(
    store: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    (tmp_path / "broken").touch()
    assert store("work", "--drain").returncode == exits.OK
    for wrong in ("17", "null", '{"id": "ch_1"}'):
        refused = store("resolve", "evt_1", "charge", "--happened", "--result", wrong, "--reason", "saw it")
        assert refused.returncode == exits.CONFIG, refused.stderr
        assert """--result '"text"'""" in refused.stderr, "its form is told"
    assert json.loads(store("show", "evt_1", "--json").stdout)["event"]["state"] == "needs_review", "nothing is done"


def test_what_follows_a_decision_is_said(
    store: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    arrive(tmp_path, environment, *(f"evt_{n}=invoice.paid" for n in range(3)), "evt_3=invoice.sent")
    (tmp_path / "broken").touch()
    assert store("work", "--drain").returncode == exits.OK
    ids = {key: json.loads(store("show", key, "--json").stdout)["event"]["id"] for key in ("evt_0", "evt_1", "evt_3")}
    why, none = ("--reason", "looked"), "No worker is alive: run hookledger work"

    said = store("resolve", "evt_0", "charge", "--did-not-happen", *why).stderr
    assert f"Event {ids['evt_0']} is pending: a worker runs its handler again." in said
    assert none in said
    assert said.endswith(f"To see the result: hookledger show {ids['evt_0']}\n")
    said = store("resolve", "evt_3", "post", "--did-not-happen", *why).stderr
    assert "Effect post evt_3 was unknown, is planned: a worker performs it." in said
    assert f"Event {ids['evt_3']} is processed." in said
    assert none in said
    said = store("resolve", "evt_3", "post", "--cancel", *why).stderr
    assert f"Event {ids['evt_3']} is processed." in said
    assert none not in said, "nothing is left to do"

    arrive(tmp_path, environment, "live=worker", "evt_8=invoice.paid", "evt_9=other")
    assert store("circuits", "trip", "bank", "--reason", "maintenance").returncode == exits.OK
    said = store("resolve", "evt_1", "charge", "--did-not-happen", *why).stderr
    assert "is pending: a worker runs its handler again." in said
    assert none not in said
    assert "The circuit of bank is open: maintenance; hookledger circuits reset bank --reason WHY" in said
    said = store("retry", "evt_2", *why).stderr
    assert "is pending: a worker runs its handler again." in said
    assert "To see the result: hookledger show " in said
    assert store("pause", "stripe", "invoice.paid", "--reason", "the bank is down").returncode == exits.OK
    assert store("discard", "evt_8", *why).returncode == exits.OK
    said = store("replay", "evt_8", "--yes", *why).stderr
    assert "is pending, in run 2: a worker runs its handler again." in said
    assert "invoice.paid of source stripe is paused: hookledger resume stripe invoice.paid --reason WHY" in said
    assert store("discard", "evt_9", *why).returncode == exits.OK
    said = store("replay", "evt_9", "--yes", *why).stderr
    assert "No live worker handles type other of source stripe" in said


def test_a_failed_event_is_retried_after_its_result_is_corrected(
    store: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    (tmp_path / "broken").touch()
    assert store("work", "--drain").returncode == exits.OK
    happened = ("resolve", "evt_1", "charge", "--happened", "--reason", "saw it")
    assert store(*happened, "--result", "null", HOOKLEDGER_APP="").returncode == exits.OK
    assert store("work", "--drain").returncode == exits.OK
    ident = json.loads(store("show", "evt_1", "--json").stdout)["event"]["id"]
    said = store(*happened, "--result", '"ch_1"').stderr
    assert f"Event {ident} is failed." in said
    assert f"To retry it: hookledger retry {ident} --reason WHY" in said
    assert "a worker runs" not in said


def test_an_operator_decides_many(store: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, *(f"evt_{n}=invoice.{kind}" for n, kind in enumerate(["paid", "sent"] * 2)))
    (tmp_path / "broken").touch()
    assert store("work", "--drain").returncode == exits.OK
    assert calls(tmp_path) == 4
    (tmp_path / "broken").unlink()
    why = ("--reason", "the bank has none of them", "--actor", "ada")
    for wrong in ((), ("--happened", "--did-not-happen")):
        assert store("bulk", "resolve", "charge", *wrong, *why).returncode == exits.USAGE
    none = store("bulk", "resolve", "chrage", "--happened", "--yes", *why)
    assert (none.returncode, "no event that matches has an effect chrage" in none.stderr) == (exits.NOT_ALLOWED, True)
    for command in (("resolve", "chrage", "--happened"), ("retry", "--state", "failed")):
        none = store("bulk", *command, *why)
        assert (none.returncode, "confirm by" in none.stderr) == (exits.NOT_ALLOWED, False), "nothing to confirm"
    looked = store("bulk", "resolve", "charge", "--did-not-happen", "--dry-run")
    assert "2 events match, and have an effect charge that is unknown." in looked.stdout
    assert "2 unknown effects of them would be decided: charge did not happen." in looked.stdout
    assert "called again, under the same idempotency key" in looked.stdout
    asked = store("bulk", "resolve", "charge", "--did-not-happen", *why)
    assert (asked.returncode, "--count 2" in asked.stderr) == (exits.NOT_ALLOWED, True)
    seen = json.loads(store("bulk", "resolve", "charge", "--did-not-happen", "--dry-run", "--json").stdout)
    assert f"--fingerprint {seen['fingerprint']}" in looked.stdout
    others = store("bulk", "resolve", "charge", "--did-not-happen", "--count", "2", "--fingerprint", "0" * 16, *why)
    assert (others.returncode, "not those that were looked at" in others.stderr) == (exits.NOT_ALLOWED, True)
    one = store("bulk", "resolve", "charge", "--did-not-happen", "--effect", "charge:evt_0", "--yes", *why)
    assert (one.returncode, "use `hookledger resolve`" in one.stderr) == (exits.CONFIG, True)
    assert json.loads(store("jobs", "--json").stdout) == []

    pace = ("--per-second", "0")
    agree = ("--fingerprint", seen["fingerprint"])
    done = store("bulk", "resolve", "charge", "--did-not-happen", *agree, *pace, *why, "--json")
    assert done.returncode == exits.OK, done.stderr
    job = json.loads(done.stdout)
    assert (job["done"], job["effects"]) == (2, 2)
    assert job["resolving"] == {"effect": "charge", "decision": "did_not_happen"}
    assert store("bulk", "resolve", "post", "--happened", "--yes", *pace, *why).returncode == exits.OK
    shown = store("jobs", "show", job["id"]).stdout
    assert "resolve of 2 events, 2 effects: charge did not happen, done" in shown
    items = json.loads(store("jobs", "items", job["id"], "--json").stdout)
    assert {(item["state"], item["outcome"], item["now"]) for item in items} == {("needs_review", "done", "pending")}
    assert store("work", "--drain").returncode == exits.OK
    assert calls(tmp_path) == 6, "one each for what did not happen, and none for what did"
    items = json.loads(store("jobs", "items", job["id"], "--json").stdout)
    assert {item["now"] for item in items} == {"processed"}, "not that they were sent on their way"
    results = {key: json.loads(store("show", key, "--json").stdout) for key in ("evt_0", "evt_1")}
    assert [value["event"]["state"] for value in results.values()] == ["processed"] * 2
    assert not any(value["event"]["attention"] for value in results.values())
    [action, *_] = results["evt_0"]["actions"]
    assert (action["name"], action["actor"]) == ("resolve", "ada")
    assert action["subject"] == f"charge:evt_0, job {job['id']}"


def test_decisions_that_are_refused(store: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    assert store("work", "--drain").returncode == exits.OK
    why = ("--reason", "because")
    assert store("resolve", "evt_1", "charge", *why).returncode == exits.USAGE
    assert store("resolve", "evt_1", "charge", "--happened").returncode == exits.USAGE
    refused = store("resolve", "evt_1", "charge", "--did-not-happen", *why)
    assert refused.returncode == exits.NOT_ALLOWED
    assert "is done" in refused.stderr
    missing = store("resolve", "evt_1", "mail", "--happened", *why)
    assert missing.returncode == exits.NOT_FOUND
    assert "charge:evt_1" in missing.stderr, "it names what there is"
    assert store("resolve", "evt_9", "charge", "--happened", *why).returncode == exits.NOT_FOUND
    bad = store("resolve", "evt_1", "charge", "--happened", "--result", "{", *why)
    assert bad.returncode == exits.CONFIG
    assert "JSON" in bad.stderr


def test_a_circuit_is_tripped_and_reset(store: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    assert "No downstream" in store("circuits").stderr
    assert store("circuits", "trip", "bank", "--reason", "maintenance").returncode == exits.OK
    [circuit] = json.loads(store("circuits", "--json").stdout)
    assert (circuit["state"], circuit["retry_in"]) == ("open", None)
    assert "when reset" in store("circuits").stdout
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    assert store("work", "--drain").returncode == exits.OK
    event = json.loads(store("show", "evt_1", "--json").stdout)["event"]
    assert (event["state"], event["attempts"], event["snoozes"]) == ("retrying", 0, 1)
    assert "maintenance" in event["reason"]
    assert calls(tmp_path) == 0

    assert store("circuits", "reset", "bank", "--reason", "they are back").returncode == exits.OK
    assert store("retry", "evt_1", "--reason", "now").returncode == exits.OK
    assert store("work", "--drain").returncode == exits.OK
    assert calls(tmp_path) == 1
    assert json.loads(store("circuits", "--json").stdout)[0]["state"] == "closed"
