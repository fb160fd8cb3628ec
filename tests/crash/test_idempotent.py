"""A guarded route of an application that is killed with -9: one committed run, one answer, or an unknown outcome."""

import asyncio
import json
from pathlib import Path

import pytest

from hookledger import Inbox
from tests.crash.conftest import Install
from tests.crash.processes import Installation, Process, eventually
from tests.services import forked

MODULE = "tests.crash.idempotent_app"


class Api:
    """Processes of the application, each with the requests that it makes."""

    def __init__(self, installation: Installation, **environment: str) -> None:
        forked.load("fastapi", "starlette.testclient")
        self.installation = installation
        installation.environment |= environment
        self._asked = 0

    def begin(self, kill: str = "0", requests: int = 1, key: str = "k-1") -> tuple[Process, Path]:
        self._asked += 1
        out = self.installation.folder / f"answers-{self._asked}.json"
        return self.installation._start("api", MODULE, key, str(out), kill, str(requests)), out

    def ask(self, kill: str = "0", requests: int = 1) -> list[tuple[int, str]] | None:
        """The answers, or None if the process was killed."""
        process, out = self.begin(kill, requests)
        assert process.exit_code() == (0 if kill == "0" else -9), process.log
        return answers(out) if kill == "0" else None


def answers(out: Path) -> list[tuple[int, str]]:
    return [(status, body) for status, body in json.loads(out.read_text())]


# proves R77
@pytest.mark.parametrize("kill", ["1", "2", "route", "3", "4"])
def test_killed_at_each_commit_a_route_in_the_transaction_commits_once(installation: Installation, kill: str) -> None:
    api = Api(installation, GUARD='{"repeat": "transaction"}')
    api.ask(kill)
    first, second = api.ask(), api.ask()
    assert first is not None
    assert first[0][0] == 200
    assert first == second
    assert len(installation.database.effects()) == 1
    assert installation.database.event("acme:k-1")["state"] == "processed"
    installation.check()


# proves R77
def test_a_killed_route_that_wrote_elsewhere_is_unknown_and_not_repeated(
    installation: Installation, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    api = Api(installation, ELSEWHERE=str(calls))
    api.ask("route")
    for _ in range(2):
        [(status, body)] = api.ask() or []
        assert (status, json.loads(body)["type"]) == (409, "urn:hookledger:idempotency:unknown-outcome")
    assert len(calls.read_text().splitlines()) == 1
    assert installation.database.event("acme:k-1")["state"] == "needs_review"
    installation.check()


def test_a_worker_sends_a_killed_route_to_review(installation: Installation, tmp_path: Path) -> None:
    api = Api(installation, ELSEWHERE=str(tmp_path / "calls"))
    api.ask("route")
    installation.use(f"{MODULE}:inbox")
    installation.work()
    installation.drain()
    row = installation.database.event("acme:k-1")
    assert (row["state"], row["attempts"]) == ("needs_review", 2)
    assert "unknown" in row["reason"]


def test_two_processes_and_a_hundred_requests_run_the_route_once(installation: Installation) -> None:
    api = Api(installation, GUARD='{"wait": "60s"}', SLOW="0.3")
    begun = [api.begin(requests=50) for _ in range(2)]
    assert [process.exit_code() for process, _ in begun] == [0, 0]
    given = [answer for _, out in begun for answer in answers(out)]
    assert len(given) == 100
    assert len(set(given)) == 1
    assert given[0][0] == 200
    assert len(installation.database.effects()) == 1
    installation.check()


def test_of_two_processes_one_is_killed_and_the_other_completes_it_once(installation: Installation) -> None:
    api = Api(installation, GUARD='{"wait": "60s", "repeat": "transaction"}')
    victim, _ = api.begin("route", requests=50)
    other, out = api.begin(requests=50)
    assert victim.exit_code() in (0, -9)  # 0 where the other was first
    assert other.exit_code() == 0
    assert len(set(answers(out))) == 1
    assert len(installation.database.effects()) == 1


def test_a_frozen_process_that_wakes_up_commits_nothing_and_gets_the_stored_answer(
    install: Install, postgres_url: str
) -> None:
    """On PostgreSQL: on SQLite it would keep the write lock, and no other process could run the route."""
    installation = install(postgres_url)
    api = Api(installation, GUARD='{"repeat": "transaction"}', SLOW="0.7")
    frozen, out = api.begin()
    eventually(lambda: installation.database.states() == {"processing": 1}, "the route runs")
    frozen.freeze()
    kept = api.ask()
    frozen.thaw()
    assert frozen.exit_code() == 0, frozen.log
    assert answers(out) == kept
    assert len(installation.database.effects()) == 1
    installation.check()


def test_after_two_crashes_an_approved_request_runs_once_more(
    install: Install, sqlite_url: str, tmp_path: Path
) -> None:
    installation = install(sqlite_url)
    api = Api(installation, ELSEWHERE=str(tmp_path / "calls"))

    async def approve() -> None:
        async with Inbox(sqlite_url).opened() as store:
            [event] = await store.search.events()
            await store.reviews.approve(event.id, event.state, "ada", "looked", seen=event.claim)

    for _ in range(2):
        api.ask("route")
        assert [status for status, _ in api.ask() or []] == [409]
        asyncio.run(approve())
    assert [status for status, _ in api.ask() or []] == [200]
    assert len((tmp_path / "calls").read_text().splitlines()) == 3
