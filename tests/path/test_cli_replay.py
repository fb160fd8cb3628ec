"""`replay` and `discard`, and what `show` says of runs: real processes, and the incident that they are for."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from hookledger.cli import exits
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures
from tests.path.test_cli_effects import BOOK, arrive

APP = """
from pathlib import Path
from hookledger import Event, Inbox, Op, RetryPolicy

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["env:SECRET"])
quick = RetryPolicy(initial_delay="10ms", max_delay="10ms", attempts=3)

def remote(name: str, key: str) -> None:
    known = Path(name).read_text().splitlines() if Path(name).exists() else []
    if key not in known:  # it remembers the keys that it has seen
        with Path(name).open("a") as file:
            print(key, file=file)
    if Path(f"{name}.slow").exists():
        Path(f"{name}.slow").unlink()
        raise TimeoutError("no answer in 10 s")

@inbox.effect(repeat="keyed", window="1d")
async def provision_workspace(op: Op, account: str) -> str:
    remote("workspaces", op.key)
    return "ws_7"

@inbox.effect(repeat="never", retry=quick)
async def send_receipt(op: Op, to: str) -> None:
    if Path("mail.lost").exists():
        Path("mail.lost").unlink()
        raise TimeoutError("no answer from the queue")
    remote("mails", op.key)

@stripe.on("invoice.paid", retry=quick, replay="converges")
async def paid(event: Event) -> str:
    print("the handler prints")
    workspace = await event.call(provision_workspace, event.key, account="acme")
    await event.tx.execute("CREATE TABLE IF NOT EXISTS credit (cents INTEGER)")
    if await event.once("credit", event.key):
        await event.tx.execute("INSERT INTO credit VALUES (500)")
    await event.later(send_receipt, event.key, to="a@example.test")
    return workspace
@stripe.on("invoice.long", transaction=False)
async def long(event: Event) -> None:
    Path("long").touch()

@stripe.on("invoice.bad")
async def bad(event: Event) -> None:
    Path("bad").touch()
    await event.tx.execute("INSERT INTO nowhere VALUES (1)")

@stripe.on("invoice.sent")
async def sent(event: Event) -> None:
    await event.tx.execute("CREATE TABLE IF NOT EXISTS log (line TEXT)")
    await event.tx.execute("INSERT INTO log VALUES ('sent')")
"""


@pytest.fixture
def billing(tmp_path: Path, shop: Run, environment: dict[str, str]) -> Run:  # noqa: F811
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "book.py").write_text(BOOK)
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    return shop


def show(billing: Run, event: str) -> dict[str, Any]:
    shown = billing("show", event, "--json")
    assert shown.returncode == exits.OK, shown.stderr
    value: dict[str, Any] = json.loads(shown.stdout)
    return value


def effects(shown: dict[str, Any]) -> dict[str, str]:
    return {e["effect"]["name"]: e["effect"]["state"] for e in shown["effects"] if not e["effect"]["superseded"]}


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().splitlines() if (folder / name).exists() else []


def credit(folder: Path) -> int:
    connection = apsw.Connection(str(folder / "shop.db"))
    try:
        return sum(row[0] for row in connection.execute("SELECT cents FROM credit"))
    finally:
        connection.close()


WORK = ("work", "--drain")


# proves R50, R51, R63
def test_the_billing_incident(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    # An invoice is paid. The workspace API does the work, and its answer is lost. A retry finds it done. The mail
    # queue does not answer either; nobody can say whether the receipt was queued.
    (tmp_path / "workspaces.slow").touch()
    (tmp_path / "mail.lost").touch()
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    for _ in range(3):
        assert billing(*WORK).returncode == exits.OK
    # The provider, which had waited too long for somebody, sends it again.
    arrive(tmp_path, environment, "evt_1=invoice.paid")

    # Finance asks: was the customer provisioned, charged, told? May we just run it again? One call answers.
    told = show(billing, "evt_1")
    assert told["event"]["state"] == "processed"
    assert told["event"]["received_at"], "first received?"
    assert [d["outcome"] for d in told["deliveries"]] == ["accepted", "duplicate"]
    assert [a["outcome"] for a in told["attempts"]] == ["retrying", "processed"], "attempts?"
    assert effects(told) == {"provision_workspace": "done", "credit": "done", "send_receipt": "unknown"}
    assert told["actions"] == [], "replayed by whom?"
    assert told["replay"]["verdict"] == "needs a decision", "another replay safe?"
    assert "send_receipt:evt_1 may have happened" in told["replay"]["words"]

    asked = told["answers"]
    assert (asked["first_received"], asked["deliveries"]) == (told["event"]["received_at"], 2)
    assert (asked["attempts"]["ended"], asked["attempts"]["last"]) == (2, "processed")
    assert {one["label"] for one in asked["completed"]} == {"provision_workspace:evt_1", "credit:evt_1"}
    assert [(one["label"], one["state"]) for one in asked["open"]] == [("send_receipt:evt_1", "unknown")]
    assert (asked["replays"], asked["verdict"]) == ([], "needs a decision")
    assert any("send_receipt:evt_1 may have happened" in deed for deed in asked["items"])
    seen = billing("show", "evt_1").stdout
    for question in (
        *("first received?", "attempts?", "effects completed?", "pending or uncertain?"),
        *("replayed by whom?", "a replay now?"),
    ):
        assert question in seen

    # Whoever clicks all the same is stopped, and told why.
    stopped = billing("replay", "evt_1", "--reason", "finance asked", "--actor", "bob")
    assert stopped.returncode == exits.NOT_ALLOWED
    assert "send_receipt:evt_1 may have happened" in stopped.stderr
    assert show(billing, "evt_1")["event"] == told["event"]

    # Somebody looks into the mail queue: it is not there. That is decided, and the outbox sends it.
    found = ("--did-not-happen", "--reason", "not in the queue", "--actor", "ada")
    assert billing("resolve", "evt_1", "send_receipt", *found).returncode == exits.OK
    assert billing(*WORK).returncode == exits.OK
    assert len(lines(tmp_path, "mails")) == 1

    # Now it is safe, and says why; and what it says is what happens.
    preview = billing("replay", "evt_1", "--preview").stdout
    assert "Replay as run 2: safe" in preview
    assert 'paid declares replay="converges"' in preview
    assert preview.count("skipped") >= 3
    done = billing("replay", "evt_1", "--reason", "finance asked", "--actor", "ada")
    assert done.returncode == exits.OK, done.stderr
    assert "is pending, in run 2: a worker runs its handler again" in done.stderr
    assert billing(*WORK).returncode == exits.OK
    assert (len(lines(tmp_path, "workspaces")), len(lines(tmp_path, "mails"))) == (1, 1)
    assert credit(tmp_path) == 500

    # The customer deleted the receipt. One effect is repeated, by a decision of its own, under a key of its own.
    named = ("--repeat-effect", "send_receipt", "--reason", "customer asked", "--actor", "ada")
    wanted = json.loads(billing("replay", "evt_1", *named, "--json").stdout)
    assert wanted["preview"]["verdict"] == "will do"
    assert wanted["preview"]["words"].startswith("will do: send_receipt:evt_1 once more")
    assert wanted["event"]["run"] == 3
    assert billing(*WORK).returncode == exits.OK
    assert (len(lines(tmp_path, "workspaces")), credit(tmp_path)) == (1, 500)
    assert len(set(lines(tmp_path, "mails"))) == 2, "two mails, two idempotency keys"

    # All of it can be read afterwards.
    told = show(billing, "evt_1")
    assert [(a["name"], a["actor"], a["subject"]) for a in told["actions"]] == [
        ("resolve", "ada", "send_receipt:evt_1"),
        ("replay", "ada", "run 2"),
        ("repeat", "ada", "send_receipt:evt_1"),
        ("replay", "ada", "run 3"),
    ]
    assert [a["run"] for a in told["attempts"]] == [1, 1, 2, 3]
    assert len(told["deliveries"]) == 2, "a replay is no new delivery"
    seen = billing("show", "evt_1").stdout
    for words in ("run 2 by ada", "run 3 by ada", "action: repeat", "(generation 2)", "a replay now"):
        assert words in seen
    timeline = seen[seen.index("Timeline") :]
    assert [(a["subject"], a["actor"]) for a in told["answers"]["replays"]] == [("run 2", "ada"), ("run 3", "ada")]
    assert told["timeline"] == json.loads(billing("show", "evt_1", "--timeline", "--json").stdout)
    assert [entry["at"] for entry in told["timeline"]] == sorted(entry["at"] for entry in told["timeline"])
    happened = [(entry["kind"], entry["what"]) for entry in told["timeline"]]
    assert happened[:3] == [("delivery", "accepted"), ("authentication", "verified"), ("attempt", "claimed")]
    assert happened.count(("delivery", "duplicate")) == 1
    keys = {entry["idempotency_key"] for entry in told["timeline"] if entry["effect"] == "send_receipt:evt_1"}
    assert len(keys - {None}) == 2, "two generations, two idempotency keys"
    assert lines(tmp_path, "mails")[0] in billing("show", "evt_1", "--timeline").stdout
    places = [timeline.index(words) for words in ("run 1, claim", "run 2: processed → pending", "run 3, claim")]
    assert places == sorted(places)


def test_a_preview_is_honest(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.sent", "evt_2=invoice.paid")
    waiting = json.loads(billing("replay", "evt_1", "--preview", "--json").stdout)
    assert waiting["verdict"] == "needs a decision"
    assert "the event is pending" in waiting["words"]
    assert billing(*WORK).returncode == exits.OK
    before = show(billing, "evt_1")
    preview = json.loads(billing("replay", "evt_1", "--preview", "--json").stdout)
    assert preview["words"] == "will do: what sent writes outside event.once, again"
    assert any("does not declare" in reason for reason in preview["reasons"])
    assert any("cannot be predicted" in reason for reason in preview["reasons"])
    assert show(billing, "evt_1") == before, "it changed nothing"

    elsewhere = json.loads(billing("replay", "evt_2", "--preview", "--json", HOOKLEDGER_APP="").stdout)
    assert elsewhere["verdict"] == "will do"
    assert any("not loaded (--app)" in reason for reason in elsewhere["reasons"])


def test_what_is_refused(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    why = ("--reason", "because")
    assert billing("replay", "evt_1").returncode == exits.USAGE
    assert billing("discard", "evt_1").returncode == exits.USAGE
    assert billing("replay", "evt_1", *why).returncode == exits.NOT_ALLOWED, "it is pending"
    assert billing("replay", "evt_9", *why).returncode == exits.NOT_FOUND
    closed = billing("discard", "evt_1", *why, "--json")
    assert json.loads(closed.stdout)["state"] == "discarded"
    twice = billing("discard", "evt_1", *why)
    assert twice.returncode == exits.NOT_ALLOWED
    assert "is discarded" in twice.stderr
    assert billing(*WORK).returncode == exits.OK
    assert lines(tmp_path, "workspaces") == []
    missing = billing("replay", "evt_1", *why, "--repeat-effect", "send_receipt")
    assert missing.returncode == exits.NOT_FOUND
    assert billing("replay", "evt_1", "--reason", "after all", "--yes").returncode == exits.OK
    assert billing(*WORK).returncode == exits.OK
    assert (len(lines(tmp_path, "workspaces")), show(billing, "evt_1")["event"]["run"]) == (1, 2)


def test_dry_run(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.paid", "evt_2=invoice.paid")
    assert billing("discard", "evt_2", "--reason", "not yet").returncode == exits.OK

    def facts() -> list[Any]:
        told = [show(billing, event) for event in ("evt_1", "evt_2")]
        return [[one["event"], one["deliveries"], one["attempts"], one["actions"], effects(one)] for one in told]

    assert billing(*WORK).returncode == exits.OK
    before = facts()

    done = billing("replay", "evt_1", "--dry-run", "--yes")
    assert done.returncode == exits.OK, done.stderr
    assert "The code of paid runs here." in done.stderr
    assert "Rolled back: the database is unchanged." in done.stderr
    assert "Dry run of paid as run 2: processed" in done.stdout
    for words in ("done: the recorded result", "false: done before", "nothing new for the outbox", "ws_7"):
        assert words in done.stdout

    stopped = billing("replay", "evt_2", "--dry-run", "--yes", "--json")
    assert stopped.returncode == exits.NOT_PROCESSED
    assert "the handler prints" in stopped.stderr, "stdout is for data"
    report = json.loads(stopped.stdout)
    assert (report["state"], report["reason"]) == (None, "it would be called")
    assert [step["name"] for step in report["steps"]] == ["provision_workspace"]

    assert billing(*WORK).returncode == exits.OK
    assert facts() == before
    assert (len(lines(tmp_path, "workspaces")), len(lines(tmp_path, "mails")), credit(tmp_path)) == (1, 1, 500)


def test_dry_run_shows_why_the_handler_fails(
    billing: Run,
    tmp_path: Path,
    environment: dict[str, str],  # noqa: F811
) -> None:
    arrive(tmp_path, environment, "evt_1=invoice.bad")
    assert billing("discard", "evt_1", "--reason", "not yet").returncode == exits.OK
    failed = billing("replay", "evt_1", "--dry-run", "--yes")
    assert failed.returncode == exits.NOT_PROCESSED
    assert "Dry run of bad as run 2: retrying" in failed.stdout
    assert "no such table: nowhere" in failed.stdout
    assert 'await event.tx.execute("INSERT INTO nowhere' in failed.stdout, "the user's line"


def test_dry_run_that_is_refused(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.long", "evt_2=invoice.bad")
    dry = ("--dry-run", "--yes")
    assert billing("replay", "evt_2", *dry).returncode == exits.NOT_ALLOWED, "it is pending"
    for event in ("evt_1", "evt_2"):
        assert billing("discard", event, "--reason", "not yet").returncode == exits.OK
    long = billing("replay", "evt_1", *dry)
    assert (long.returncode, "has transaction=False" in long.stderr) == (exits.NOT_ALLOWED, True)
    elsewhere = billing("replay", "evt_2", *dry, HOOKLEDGER_APP="")
    assert (elsewhere.returncode, "needs the application; give --app" in elsewhere.stderr) == (exits.CONFIG, True)
    assert billing("replay", "evt_9", *dry).returncode == exits.NOT_FOUND
    for wrong in (("--dry-run",), (*dry, "--preview"), (*dry, "--repeat-effect", "x")):
        assert billing("replay", "evt_2", *wrong).returncode == exits.USAGE, "no terminal to ask, or too much asked"
    assert not (tmp_path / "long").exists()
    assert not (tmp_path / "bad").exists()


def test_dry_run_asks_on_a_terminal(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.bad")
    assert billing("discard", "evt_1", "--reason", "not yet").returncode == exits.OK
    for answer, code in ((b"n\n", exits.ERROR), (b"y\n", exits.NOT_PROCESSED)):
        asked = on_terminal(tmp_path, environment, answer, "replay", "evt_1", "--dry-run")
        assert "Run bad on event" in asked.stderr
        assert (asked.returncode, (tmp_path / "bad").exists()) == (code, code == exits.NOT_PROCESSED)


def on_terminal(
    folder: Path,
    environment: dict[str, str],  # noqa: F811
    answer: bytes,
    *arguments: str,
) -> subprocess.CompletedProcess[str]:
    """A command whose user types this."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [sys.executable, "-m", "hookledger", *arguments]
    where: dict[str, Any] = {"cwd": folder, "env": environment, "stdin": theirs}
    try:
        return subprocess.run(command, **where, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)


# proves R63
def test_a_terminal_is_asked(billing: Run, tmp_path: Path, environment: dict[str, str]) -> None:  # noqa: F811
    arrive(tmp_path, environment, "evt_1=invoice.paid")
    assert billing(*WORK).returncode == exits.OK
    for answer, run_after in ((b"n\n", 1), (b"y\n", 2)):
        asked = on_terminal(tmp_path, environment, answer, "replay", "evt_1", "--reason", "because")
        assert "Replay it as run 2?" in asked.stderr
        assert (asked.returncode == exits.OK) is (run_after == 2)
        assert show(billing, "evt_1")["event"]["run"] == run_after
