"""The guard on Redis in processes that are killed, frozen and many."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis import Guard, Status
from tests.crash.processes import PATIENCE, Process, eventually
from tests.services import forked
from tests.services.valkey import Valkey
from tests.soak import amount


class Application:
    """Processes that share a Valkey, and what the outside world saw of them."""

    def __init__(self, folder: Path, valkey: Valkey) -> None:
        self.folder, self.valkey = folder, valkey
        self.processes: list[Process] = []

    def start(self, *keys: str, repeat: str = "safe", callers: int = 1) -> Process:
        environment = os.environ | {"REDIS_URL": self.valkey.url}
        log = self.folder / f"log-{len(self.processes)}"
        arguments = [str(self.folder), repeat, str(callers), *keys]
        process = Process("caller", "tests.crash.redis_app", arguments, log, environment)
        self.processes.append(process)
        return process

    def lines(self, file: str) -> list[list[str]]:
        path = self.folder / file
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def ready(self, processes: int) -> None:
        eventually(lambda: len(self.lines("ready")) == processes, "all are ready")

    def go(self, processes: int) -> None:
        self.ready(processes)
        (self.folder / "go").touch()

    def hang(self) -> None:
        (self.folder / "hang").touch()

    def end(self) -> None:
        for process in self.processes:
            if process.running:
                process.kill()

    async def unknown(self) -> list[Status]:
        async with Redis.from_url(self.valkey.url) as client:
            return [status async for status in Guard(client, away="closed").unknown()]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    forked.load("redis.asyncio", "hookledger.contrib.redis")
    with Valkey() as valkey:
        made = Application(tmp_path, valkey)
        yield made
        made.end()


# proves R42
def test_a_hundred_callers_of_one_key_in_two_processes(application: Application) -> None:
    processes = [application.start("k-1", callers=50) for _ in range(2)]
    application.go(2)
    assert [process.exit_code() for process in processes] == [0, 0], processes[0].log
    assert len(application.lines("runs")) == 1
    answers = Counter(answer for _, answer, _ in application.lines("answers"))
    assert list(answers.values()) == [100], answers
    assert len(next(iter(answers))) == 32, "an answer, and not the name of an error"


def test_killed_in_the_middle_of_the_work(application: Application) -> None:
    """The hundred that wait elsewhere: one of them completes it once."""
    application.hang()
    victim = application.start("k-1")
    application.go(1)
    eventually(lambda: application.lines("runs"), "the work runs")
    others = [application.start("k-1", callers=50) for _ in range(2)]
    application.ready(3)
    victim.kill()
    (application.folder / "hang").unlink()
    assert [process.exit_code() for process in others] == [0, 0], others[0].log
    assert len(application.lines("runs")) == 2, "safe: the work runs again"
    answers = Counter(answer for _, answer, _ in application.lines("answers"))
    assert list(answers.values()) == [100], answers


def test_killed_work_that_must_not_be_repeated(application: Application) -> None:
    application.hang()
    victim = application.start("k-1", repeat="never")
    application.go(1)
    eventually(lambda: application.lines("runs"), "the work runs")
    victim.kill()
    (application.folder / "hang").unlink()
    other = application.start("k-1", repeat="never", callers=5)
    assert other.exit_code() == 0, other.log
    assert len(application.lines("runs")) == 1
    assert {answer for _, answer, _ in application.lines("answers")} == {"UnknownOutcome"}
    assert [status.key for status in asyncio.run(application.unknown())] == ["k-1"]


def test_a_frozen_process_that_wakes_up_is_refused(application: Application) -> None:
    application.hang()
    frozen = application.start("k-1")
    application.go(1)
    eventually(lambda: application.lines("runs"), "the work runs")
    frozen.freeze()
    (application.folder / "hang").unlink()
    other = application.start("k-1")
    assert other.exit_code() == 0, other.log
    [[_, kept, _]] = application.lines("answers")
    frozen.thaw()
    assert frozen.exit_code() == 0, frozen.log
    assert len(application.lines("runs")) == 2
    assert [answer for _, answer, _ in application.lines("answers")] == [kept, "ClaimLost"]
    assert len(application.lines("lost")) == 1, "the work was told"
    assert application.start("k-1").exit_code() == 0
    assert application.lines("answers")[-1][1] == kept


@pytest.mark.timeout(amount(180, 600, 3600))
@pytest.mark.parametrize("repeat", ["safe", "never"])
def test_killed_at_random(application: Application, repeat: str, rounds: int) -> None:
    """Two processes at a time call the same keys; one is killed again and again."""
    keys = [f"k-{number}" for number in range(amount(40, 400, 5000))]
    (application.folder / "go").touch()
    steady = application.start(*keys, repeat=repeat, callers=3)
    for number in range(5 * rounds):
        victim = application.start(*random.sample(keys, len(keys)), repeat=repeat, callers=3)
        application.ready(number + 2)
        time.sleep(random.uniform(0, 0.6))
        victim.kill()
    assert steady.exit_code(PATIENCE + len(keys)) == 0, steady.log
    last = application.start(*keys, repeat=repeat)
    assert last.exit_code(PATIENCE + len(keys)) == 0, last.log

    answers: dict[str, set[str]] = {}
    for key, answer, _ in application.lines("answers"):
        if answer not in ("ClaimLost", "GuardUnavailable", "NotStored"):  # a machine too busy for the lease
            answers.setdefault(key, set()).add(answer)
    assert set(answers) == set(keys)
    assert all(len(given) == 1 for given in answers.values()), "each key has one answer"
    if repeat == "never":
        runs = Counter(key for key, _ in application.lines("runs"))
        assert max(runs.values()) == 1
        unknown = {status.key for status in asyncio.run(application.unknown())}
        assert unknown == {key for key, given in answers.items() if given == {"UnknownOutcome"}}
