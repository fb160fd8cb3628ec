"""Bulk work and pauses on the command line: real processes."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw

from hookledger.cli import exits
from hookledger.clock import Clock
from hookledger.store.connect import connect
from tests.builders import delivered as delivery
from tests.builders import record
from tests.path.test_cli import Run, environment, run, shop  # noqa: F401 - fixtures


def take_in(folder: Path, count: int, kind: str) -> None:
    """So many events, recorded as the intake would."""

    async def main() -> None:
        store = connect(f"sqlite:///{folder}/shop.db", clock=Clock())
        await store.open()
        await record(store, *(delivery(f"{kind}_{n}", b'{"n": %d}' % n, type=kind) for n in range(count)))
        await store.close()

    asyncio.run(main())


def test_bulk_retry_from_the_count_to_the_end(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    take_in(tmp_path, 7, "invoice.bad")
    assert shop("work", "--drain").returncode == exits.OK
    looked = shop("bulk", "retry", "--state", "failed", "--dry-run", "--json")
    preview = json.loads(looked.stdout)
    assert (preview["count"], preview["allowed"]) == (7, 7)
    assert json.loads(shop("jobs", "--json").stdout) == [], "a dry run changes nothing"

    why = ("--reason", "plan known now")
    asked = shop("bulk", "retry", "--state", "failed", *why)
    assert asked.returncode == exits.NOT_ALLOWED
    assert "--count 7" in asked.stderr
    wrong = shop("bulk", "retry", "--state", "failed", "--count", "8", *why)
    assert wrong.returncode == exits.NOT_ALLOWED
    assert "7 events match now, and not the 8" in wrong.stderr
    assert shop("bulk", "retry", "--count", "7").returncode == exits.USAGE, "no reason"

    done = shop("bulk", "retry", "--state", "failed", "--count", "7", "--per-second", "0", *why, "--json")
    assert done.returncode == exits.OK, done.stderr
    job = json.loads(done.stdout)
    assert (job["state"], job["done"], job["not_allowed"]) == ("done", 7, 0)
    assert job["where"]["states"] == ["failed"]
    assert json.loads(shop("events", "--counts", "--json").stdout)["events"]["pending"] == 7
    [listed] = json.loads(shop("jobs", "--json").stdout)
    assert listed["id"] == job["id"]
    assert "7 events, done" in shop("jobs", "show", job["id"]).stdout


def test_bulk_says_what_the_events_are_now(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    """That the job is done says nothing of its events: a worker processes them later."""
    take_in(tmp_path, 3, "invoice.bad")
    assert shop("work", "--drain").returncode == exits.OK
    where = ("--state", "failed", "--type", "invoice.*", "--error", "unknown plan", "--since", "2026-01-31")
    done = shop("bulk", "retry", *where, "--yes", "--reason", "plan known now")
    assert done.returncode == exits.OK, done.stderr
    assert "3 done, 0 not allowed, 0 not touched. The 3 events that were acted on are now: 3 pending." in done.stderr
    assert "No worker is alive: run hookledger work" in done.stderr
    [job] = json.loads(shop("jobs", "--json").stdout)
    shown = shop("jobs", "show", job["id"]).stdout
    assert re.search(r"acted on +3: 3 pending now\n", shown), shown
    written = "--type 'invoice.*' --state failed --error 'unknown plan' --since 2026-01-31T00:00:00+00:00"
    assert written in shown, "as it can be typed again"
    assert "{" not in shown
    assert json.loads(shop("jobs", "show", job["id"], "--json").stdout)["now"] == {"pending": 3}
    assert shop("work", "--drain").returncode == exits.OK
    shown = shop("jobs", "show", job["id"]).stdout
    assert re.search(r"acted on +3: 3 failed now\n", shown), shown
    every = shop("bulk", "discard", "--yes", "--reason", "enough")
    assert "3 discarded." in every.stderr
    assert "worker" not in every.stderr.partition("acted on")[2], "nothing follows"
    [newest, _] = json.loads(shop("jobs", "--json").stdout)
    assert re.search(r"the events +all\n", shop("jobs", "show", newest["id"]).stdout)


def test_bulk_replay_says_what_is_refused_and_why(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    take_in(tmp_path, 3, "invoice.paid")
    assert shop("work", "--drain").returncode == exits.OK
    take_in(tmp_path, 2, "invoice.new")
    looked = shop("bulk", "replay", "--dry-run")
    assert "5 events match" in looked.stdout
    assert "2 of them are in a state in which replay is not allowed" in looked.stdout
    assert "Replay verdicts of the newest 5 of them: 2 needs a decision, 3 will do" in looked.stdout
    done = shop("bulk", "replay", "--yes", "--per-second", "0", "--reason", "again", "--json")
    assert done.returncode == exits.OK, done.stderr
    job = json.loads(done.stdout)
    assert (job["done"], job["not_allowed"]) == (3, 2)
    shown = json.loads(shop("jobs", "show", job["id"], "--json").stdout)
    [group] = shown["causes"]
    assert (group["cause"], group["count"]) == ("state", 2)
    refused = json.loads(shop("jobs", "items", job["id"], "--outcome", "not_allowed", "--json").stdout)
    assert [item["outcome"] for item in refused] == ["not_allowed"] * 2
    assert "it was pending" in shop("jobs", "items", job["id"], "--outcome", "not_allowed").stdout


def test_detach_and_cancel(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    take_in(tmp_path, 3, "invoice.paid")
    planned = shop("bulk", "discard", "--yes", "--reason", "tests", "--detach", "--json")
    job = json.loads(planned.stdout)
    assert (planned.returncode, job["state"]) == (exits.OK, "planned")
    assert f"No worker is alive: start one, or run hookledger jobs run {job['id']}." in planned.stderr
    cancelled = shop("jobs", "cancel", job["id"], "--reason", "no", "--actor", "bob", "--json")
    assert json.loads(cancelled.stdout)["cancelled_by"] == "bob"
    again = shop("jobs", "cancel", job["id"], "--reason", "no")
    assert again.returncode == exits.NOT_ALLOWED
    assert "by bob (no)" in again.stderr
    assert shop("jobs", "show", "00000000").returncode == exits.NOT_FOUND
    assert json.loads(shop("events", "--counts", "--json").stdout)["events"]["pending"] == 3


def test_a_job_whose_set_is_not_complete(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    """Nobody can run it, so nobody waits for it."""
    take_in(tmp_path, 2, "invoice.paid")
    job = json.loads(shop("bulk", "discard", "--yes", "--reason", "tests", "--detach", "--json").stdout)
    with closing(apsw.Connection(str(tmp_path / "shop.db"))) as database:  # as if its maker had died
        database.execute("UPDATE jobs SET frozen_at = NULL")
    ended = shop("jobs", "run", job["id"])
    assert ended.returncode == exits.NOT_ALLOWED
    assert "its set of events is incomplete; cancel it" in ended.stderr
    assert "its set of events incomplete" in shop("jobs", "show", job["id"]).stdout
    assert shop("jobs", "cancel", job["id"], "--reason", "tests").returncode == exits.OK


def test_agreed_to_by_typing_the_count(
    shop: Run,  # noqa: F811
    environment: dict[str, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    take_in(tmp_path, 4, "invoice.paid")
    words = [sys.executable, "-m", "hookledger", "bulk", "discard", "--reason", "tests", "--per-second", "0"]
    for typed, code, left in (("3", exits.NOT_ALLOWED, 4), ("4", exits.OK, 0)):
        ours, theirs = pty.openpty()
        os.write(ours, f"{typed}\n".encode())
        ended = subprocess.run(
            words, cwd=tmp_path, env=environment, stdin=theirs, capture_output=True, timeout=60, check=False
        )
        os.close(ours)
        os.close(theirs)
        assert ended.returncode == code, ended.stderr
        assert json.loads(shop("events", "--counts", "--json").stdout)["events"]["pending"] == left


def test_pause_and_resume(shop: Run, tmp_path: Path) -> None:  # noqa: F811
    take_in(tmp_path, 2, "invoice.paid")
    take_in(tmp_path, 2, "invoice.sent")
    paused = shop("pause", "stripe", "invoice.p*", "--reason", "the bank is down", "--actor", "ada", "--json")
    assert json.loads(paused.stdout)["pattern"] == "invoice.p*"
    assert shop("work", "--drain").returncode == exits.OK
    counts = json.loads(shop("events", "--counts", "--json").stdout)["events"]
    assert (counts["pending"], counts["processed"]) == (2, 2)
    again = shop("pause", "stripe", "invoice.p*", "--reason", "me too")
    assert again.returncode == exits.NOT_ALLOWED
    assert "paused already, by ada" in again.stderr
    assert shop("pause", "strpie", "--reason", "typo").returncode == exits.CONFIG
    assert "the bank is down" in shop("pause", "--list").stdout
    [finding] = [f for f in json.loads(shop("doctor", "--json").stdout) if "paused" in f["says"]]
    assert (finding["level"], finding["about"]) == ("warn", "source stripe")
    assert "hookledger resume stripe 'invoice.p*'" in finding["do"]
    assert shop("resume", "stripe", "invoice.p*", "--reason", "up").returncode == exits.OK
    assert shop("resume", "stripe", "invoice.p*", "--reason", "up").returncode == exits.NOT_ALLOWED
    assert shop("work", "--drain").returncode == exits.OK
    assert json.loads(shop("events", "--counts", "--json").stdout)["events"]["processed"] == 4
    assert json.loads(shop("pause", "--list", "--json").stdout) == []
