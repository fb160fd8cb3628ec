"""`doctor` on live data: the books it shows, and what it says when something is off."""

from __future__ import annotations

import pytest

from hookledger.cli import exits
from tests.asgi_client import stripe_event
from tests.crash.checker import Database
from tests.path.test_cli_quarantine import Desk, desk  # noqa: F401 - a fixture


@pytest.fixture
def database(database_url: str) -> Database:
    return Database(database_url)


def lines(found: list[dict[str, str]], about: str) -> list[dict[str, str]]:
    return [finding for finding in found if finding["about"] == about]


def test_a_sound_inbox_is_consistent(desk: Desk) -> None:  # noqa: F811
    for number in (1, 2, 3, 3):
        desk.deliver(stripe_event(f"evt_{number}"))
    desk.deliver(stripe_event("evt_4", "invoice.bad"))
    desk.work()
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.PROBLEM, "an event failed"
    levels = {finding["about"]: finding["level"] for finding in ended.json}
    abouts = ("settings", "leases", "consistency", "effects", "circuits", "alerts")
    assert [levels[about] for about in abouts] == ["ok"] * 6
    assert (levels["events"], levels["workers"]) == ("problem", "warn"), "the worker has stopped"
    assert "integrity" not in levels
    [books] = lines(ended.json, "consistency")
    assert "4 deliveries that made an event = 4 events (1 failed, 3 processed); 4 attempts" in books["says"]
    deep = desk.run("doctor", "--deep", "--limit", "30", "--fail-on", "never", "--json")
    assert deep.code == exits.OK
    assert len(lines(deep.json, "integrity")) == 1


def test_a_lost_event_is_found(desk: Desk, database: Database) -> None:  # noqa: F811
    desk.deliver(stripe_event("evt_1"))
    desk.deliver(stripe_event("evt_2"))
    desk.work()
    lost = database.event("evt_2")["id"]
    database.rows("DELETE FROM {h}events WHERE key = 'evt_2'")
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.PROBLEM
    said = [finding["says"] for finding in lines(ended.json, "consistency")]
    assert said[0].startswith("2 deliveries that made an event, but there are 1 events")
    assert said[1] == f"1 deliveries made events that are not there: {lost}"
    assert all(finding["do"] for finding in lines(ended.json, "consistency"))
    assert "keep a copy of the database" in desk.run("doctor").text


def test_no_worker_runs(desk: Desk, database: Database) -> None:  # noqa: F811
    desk.deliver(stripe_event("evt_1"))
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.PROBLEM
    [workers] = lines(ended.json, "workers")
    assert (workers["level"], "hookledger work" in workers["do"]) == ("problem", True)
    before = "1" if database.url.startswith("sqlite") else "to_timestamp(1)"
    database.rows(
        "UPDATE {h}events SET state = 'processing', claim = 1, attempts = 1, worker = 'gone', due_at = NULL, "
        f"claimed_at = {before}, leased_until = {before}"
    )
    [leases] = lines(desk.run("doctor", "--json").json, "leases")
    assert leases["level"] == "problem"
    assert leases["says"].endswith(f"{database.event('evt_1')['id']} gone")


def test_too_little_time(desk: Desk) -> None:  # noqa: F811
    ended = desk.run("doctor", "--limit", "0.000001", "--json")
    assert ended.code == exits.PROBLEM
    [books] = lines(ended.json, "consistency")
    assert "longer than 1e-06 s and was stopped" in books["says"]
