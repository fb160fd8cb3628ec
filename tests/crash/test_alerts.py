"""Alerts while processes die: each condition is told, and twice only between sending and recording that."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.killed_at import COMMITS, STEPS
from tests.crash.processes import Installation, event, eventually
from tests.services.people import HOOK, People, people_listening
from tests.soak import amount

KILLS = amount(8, 20, 1_000_000)


@pytest.fixture
def people() -> Iterator[People]:
    with people_listening() as listening:
        yield listening


def alerting(installation: Installation, people: People, *types: str, **more: Any) -> None:
    settings = people.settings(*types, **more)
    targets = settings.pop("targets")
    lines = ["[alerts]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    for name, target in targets.items():
        target |= {"only": ["dead_letter", "no_worker"]}
        lines += [f"[alerts.targets.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in target.items())]
    path = installation._settings
    path.write_text(path.read_text() + "\n" + "\n".join(lines) + "\n")


def recorded_as_sent(installation: Installation) -> int:
    [row] = installation.database.rows("SELECT count(*) AS n FROM {h}alert_messages WHERE state = 'sent'")
    n: int = row["n"]
    return n


# proves R55
def test_no_worker_is_told_by_the_process_that_is_left(installation: Installation, people: People) -> None:
    """The receiver with its operator listener is all that runs."""
    alerting(installation, people, "slack", "pagerduty", no_worker_after="1s")
    installation.receive()
    installation.send(event("evt_1"))
    eventually(lambda: people.slack and people.triggers, "people are told")
    assert "no worker is alive" in people.slack[0]
    assert people.triggers[0]["payload"]["severity"] == "critical"
    worker = installation.work()
    installation.drain()
    worker.terminate()
    assert worker.exit_code() == 0
    assert len(people.slack) == 1


def test_workers_and_receiver_together_send_once(installation: Installation, people: People) -> None:
    alerting(installation, people, "slack", "pagerduty", window="1h")
    installation.receive()
    workers = [installation.work(), installation.work()]
    installation.send(*(event(f"evt_{n}", "fail.permanent") for n in range(100)))
    installation.drain()
    eventually(lambda: people.slack and people.triggers, "people are told")
    for worker in workers:
        worker.terminate()
        assert worker.exit_code() == 0
    assert (len(people.slack), list(people.incidents.values())) == (1, [1])


def test_a_sender_killed_before_it_recorded_the_answer(installation: Installation, people: People) -> None:
    """The one gap in which a message is sent twice: its id and its key are the same."""
    alerting(installation, people, "webhook", timeout="1s")
    people.answers[HOOK] = "hang"
    receiver = installation.receive()
    worker = installation.work()
    installation.send(event("evt_1", "fail.permanent"))
    eventually(lambda: people.posts, "the message arrives")
    worker.kill()
    receiver.kill()
    del people.answers[HOOK]
    people.gate.set()
    installation.receive()
    eventually(lambda: len(people.posts) > 1, "another process sends it again")
    assert len({post.headers["webhook-id"] for post in people.posts}) == 1
    eventually(
        lambda: installation.database.rows("SELECT 1 AS one FROM {h}alert_messages WHERE state = 'sent'"), "recorded"
    )


def test_a_sender_killed_anywhere_loses_no_alert(installation: Installation, people: People, tmp_path: Path) -> None:
    """A worker that drains is killed before or after a commit, then another runs: told, and twice at most."""
    alerting(installation, people, "webhook", timeout="2s", window="10ms")
    installation.receive("--no-operator")
    place = tmp_path / "steps"
    installation.environment |= {COMMITS: "1", STEPS: str(place)}

    def work(kill_at: int) -> int:
        return installation._start("drain", "tests.crash.killed_at", str(kill_at), "work", "--drain").exit_code()

    installation.send(event("evt_0", "fail.permanent"))
    assert work(0) == 0
    steps = int(place.read_text())
    assert len(people.posts) == 1
    killed = 0
    for sent, number in enumerate(range(1, steps + 1, max(1, steps // KILLS)), start=2):
        people.posts.clear()
        installation.send(event(f"evt_{number}", "fail.permanent"))
        killed += work(number) != 0
        other = installation.work()
        eventually(lambda: recorded_as_sent(installation) == sent, f"killed at {number}: it is told")  # noqa: B023
        eventually(lambda: other.log_file.exists() and "Working on" in other.log, "it runs")  # noqa: B023
        other.terminate()
        other.exit_code()
        assert 1 <= len(people.posts) <= 2
        assert len({post.headers["webhook-id"] for post in people.posts}) == 1
    assert killed > 1
