"""`approve`, `reject` and `settle`, and what `show` says of reviews: real processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from hookledger.cli import exits
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.path.test_cli_effects import BOOK, arrive
from tests.path.test_cli_replay import on_terminal

APP = """
from pathlib import Path
from hookledger import Event, Inbox, Op, Review

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])

@inbox.effect(repeat="never")
async def charge(op: Op, cents: int) -> str:
    raise TimeoutError("no answer")

@stripe.on("invoice.paid")
async def paid(event: Event) -> str:
    if not event.approved:
        raise Review("account acct_1 is cancelled")
    with Path("provisioned").open("a") as file:
        print(event.key, file=file)
    return f"{event.approved.by}: {event.approved.reason}"

@stripe.on("invoice.charged")
async def charged(event: Event) -> str:
    return await event.call(charge, event.key, cents=5)
"""
WHY = ("--reason", "she paid", "--actor", "ada")
WORK = ("work", "--drain")


@pytest.fixture
def store(tmp_path: Path, shop: Run, environment: dict[str, str]) -> Run:  # noqa: F811
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "book.py").write_text(BOOK)
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    return shop


def show(store: Run, event: str) -> dict[str, Any]:
    shown = store("show", event, "--json")
    assert shown.returncode == exits.OK, shown.stderr
    value: dict[str, Any] = json.loads(shown.stdout)
    return value


def provisioned(folder: Path) -> list[str]:
    file = folder / "provisioned"
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def in_review(store: Run, tmp_path: Path, environment: dict[str, str]) -> Run:  # noqa: F811
    """With evt_1 in review."""
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    assert store(*WORK).returncode == exits.OK
    assert show(store, "evt_1")["event"]["state"] == "needs_review"
    return store


def test_approve(in_review: Run, tmp_path: Path) -> None:
    seen = in_review("show", "evt_1").stderr
    for command in ("approve", "reject", "settle"):
        assert f"hookledger {command} " in seen, "what to do is said"

    preview = in_review("approve", "evt_1", "--preview")
    assert preview.returncode == exits.OK, preview.stderr
    assert "Review at claim 1, " in preview.stderr
    assert "UTC: account acct_1 is cancelled" in preview.stderr
    assert "Approve as run 2: will do:" in preview.stdout
    for wanted, state in (("approve", "processed"), ("replay", "needs_review")):
        dry = in_review(wanted, "evt_1", "--dry-run", "--yes", "--actor", "ada")
        assert f"Dry run of paid as run 2: {state}" in dry.stdout
        assert dry.returncode == (exits.OK if state == "processed" else exits.NOT_PROCESSED)
    (tmp_path / "provisioned").unlink()  # a dry run really runs
    assert show(in_review, "evt_1")["event"]["run"] == 1

    done = in_review("approve", "evt_1", *WHY)
    assert done.returncode == exits.OK, done.stderr
    assert "account acct_1 is cancelled" in done.stderr, "what is approved is shown"
    assert "is pending, in run 2: a worker runs its handler again" in done.stderr
    shown = in_review("show", "evt_1").stdout
    assert "run 2 by ada, " in shown
    assert (
        "review at claim 1: needs_review → pending: she paid (the review was: account acct_1 is cancelled)" in shown
    )
    twice = in_review("approve", "evt_1", *WHY)
    assert (twice.returncode, "is pending: only needs_review can be approved" in twice.stderr) == (
        *(exits.NOT_ALLOWED, True),
    )
    assert in_review(*WORK).returncode == exits.OK
    told = show(in_review, "evt_1")
    assert (told["event"]["state"], told["event"]["result"]) == ("processed", "ada: she paid")
    assert provisioned(tmp_path) == ["evt_1"]
    [answer] = told["answers"]["reviews"]
    assert (answer["name"], answer["actor"], answer["subject"]) == ("approve", "ada", "run 2, review at claim 1")
    assert "approve by ada, " in in_review("show", "evt_1").stdout

    assert in_review("replay", "evt_1", *WHY, "--yes").returncode == exits.OK
    assert in_review(*WORK).returncode == exits.OK
    assert show(in_review, "evt_1")["event"]["state"] == "needs_review", "the next run has no approval"
    assert provisioned(tmp_path) == ["evt_1"]
    doctor = in_review("doctor", "--fail-on", "never")
    assert "accounted for" in doctor.stdout + doctor.stderr


@pytest.mark.parametrize(("command", "state"), [("reject", "discarded"), ("settle", "processed")])
def test_reject_and_settle(in_review: Run, tmp_path: Path, command: str, state: str) -> None:
    assert in_review(command, "evt_1").returncode == exits.USAGE, "it needs a reason"
    done = in_review(command, "evt_1", *WHY)
    assert done.returncode == exits.OK, done.stderr
    assert "Review at claim 1, " in done.stderr
    assert f"is {state}." in done.stderr
    assert in_review(*WORK).returncode == exits.OK
    told = show(in_review, "evt_1")
    assert (told["event"]["state"], told["event"]["run"], provisioned(tmp_path)) == (state, 1, [])
    reason = "settled by hand: she paid" if command == "settle" else "she paid"
    assert told["event"]["reason"] == reason
    assert reason in in_review("events").stdout
    [action] = told["actions"]
    assert (action["name"], action["replaced"]) == (command, "account acct_1 is cancelled")
    again = in_review(command, "evt_1", *WHY, "--json")
    assert (again.returncode, f"is {state}" in again.stderr) == (exits.NOT_ALLOWED, True)
    [entry] = json.loads(in_review("audit", "--json").stdout)
    assert (entry["name"], entry["subject"], entry["reason"]) == (command, "review at claim 1", "she paid")


def test_json(in_review: Run) -> None:
    before = json.loads(in_review("approve", "evt_1", "--preview", "--json").stdout)
    assert (before["review"]["reason"], before["review"]["claim"]) == ("account acct_1 is cancelled", 1)
    assert before["preview"]["run"] == 2
    after = json.loads(in_review("approve", "evt_1", *WHY, "--json").stdout)
    assert (after["review"], after["event"]["state"], after["event"]["run"]) == (before["review"], "pending", 2)
    assert after["event"]["approval_id"]


def test_a_terminal_is_asked(in_review: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    for answer, run_after in ((b"n\n", 1), (b"y\n", 2)):
        asked = on_terminal(tmp_path, environment, answer, "approve", "evt_1", *WHY)
        assert "account acct_1 is cancelled" in asked.stderr
        assert "Approve it as run 2?" in asked.stderr
        assert (asked.returncode == exits.OK) is (run_after == 2)
        assert show(in_review, "evt_1")["event"]["run"] == run_after


def test_what_is_not_allowed(store: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.charged")
    assert store("approve", "evt_1", *WHY).returncode == exits.NOT_ALLOWED, "it is pending"
    assert store("approve", "evt_1", "--dry-run", "--yes").returncode == exits.NOT_ALLOWED
    assert store("approve", "evt_9", *WHY).returncode == exits.NOT_FOUND
    assert store("approve", "evt_1").returncode == exits.USAGE, "it needs a reason"
    assert store("approve", "evt_1", "--dry-run", "--preview").returncode == exits.USAGE
    assert store(*WORK).returncode == exits.OK
    before = show(store, "evt_1")
    assert before["event"]["state"] == "needs_review"
    stopped = store("approve", "evt_1", *WHY)
    assert stopped.returncode == exits.NOT_ALLOWED
    assert "cannot be approved now: needs a decision: charge:evt_1 may have happened" in stopped.stderr
    assert (show(store, "evt_1")["event"], show(store, "evt_1")["actions"]) == (before["event"], [])
    seen = store("show", "evt_1").stderr
    assert "hookledger resolve " in seen
    assert "hookledger approve " not in seen, "only what is allowed is suggested"
