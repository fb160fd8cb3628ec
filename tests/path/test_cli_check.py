"""`hookledger check`, and what `doctor` and the API say of its result."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hookledger.cli import exits
from hookledger.operate.consistency.check import checker
from tests import operators
from tests.asgi_client import stripe_event
from tests.builders import Raw, recorded
from tests.crash.checker import Database
from tests.operators import desk_on
from tests.path.test_cli_doctor import lines
from tests.path.test_cli_quarantine import Desk, desk  # noqa: F401 - a fixture


def test_a_check_by_hand_is_stored_and_shown(desk: Desk, database_url: str) -> None:  # noqa: F811
    desk.deliver(stripe_event("evt_1"))
    desk.deliver(stripe_event("evt_2"))
    desk.work()
    ended = desk.run("check")
    assert (ended.code, "rows checked: no violations." in ended.err) == (exits.OK, True)
    assert desk.run("check", "--incremental", "--json").json["kind"] == "incremental"
    found = desk.run("doctor", "--json").json
    for about in ("full check", "incremental check"):
        [line] = lines(found, about)
        assert line["level"] == "ok" and "no violations" in line["says"]
    database = Database(database_url)
    lost = database.event("evt_2")["id"]
    database.rows("DELETE FROM {h}attempts WHERE event_id IN (SELECT id FROM {h}events WHERE key = 'evt_2')")
    ended = desk.run("check")
    assert ended.code == exits.PROBLEM
    assert "events are in a state that no attempt led to" in ended.text and str(lost) in ended.text
    ended = desk.run("doctor", "--json")
    assert ended.code == exits.PROBLEM
    assert [line["says"] for line in lines(ended.json, "checks")] == [
        f"a check found 1 events and their attempts disagree on whether they were ever processed: {lost}",
        f"a check found 1 events are in a state that no attempt led to: {lost}",
    ]


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[operators.Desk]:
    async with desk_on(database_url, past=False) as made:
        yield made


async def test_the_api_shows_the_checks(api: operators.Desk) -> None:
    answer = (await api.ask("GET", "/consistency", role="viewer")).json
    assert answer == {"checked_at": None, "violations": 0, "checks": []}
    event = await recorded(api.store)
    await Raw(api.store).run("DELETE FROM requests")
    work = checker(api.inbox.context(api.store))
    await work.check("full")
    await work.check("full")
    await work.check("incremental")
    answer = (await api.ask("GET", "/consistency", role="viewer")).json
    assert (answer["violations"], [one["kind"] for one in answer["checks"]]) == (1, ["incremental", "full"])
    full = answer["checks"][1]
    assert answer["checked_at"] == full["ended_at"]
    assert (full["rows"], full["problem"], full["since"]) == (3, None, None)
    assert full["violations"] == [
        {
            "rule": "requests_missing",
            "words": "deliveries should have their bytes, and do not",
            "count": 1,
            "sample": [str(event)],
        }
    ]
    answer = (await api.ask("GET", "/consistency", query={"limit": 5})).json
    assert [one["kind"] for one in answer["checks"]] == ["incremental", "full", "full"]
    assert (await api.ask("GET", "/consistency", query={"limit": 0})).status == 400
