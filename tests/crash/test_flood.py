"""Thousands of deliveries a second while receivers, and the process that writes for them on SQLite, are killed."""

import os
import signal
from collections import Counter

import pytest

from tests.crash.checker import Log, check_deliveries
from tests.crash.processes import PATIENCE, Installation, Process, events, eventually
from tests.soak import LONG, amount

FLOOD = amount(1000, 2000, 4000)
"""Deliveries for each kill."""


def kill_receiver(installation: Installation, receiver: Process) -> Process:
    receiver.kill()
    return installation.receive()


def kill_writer(installation: Installation, receiver: Process) -> Process:
    for writer in receiver.children():
        os.kill(writer, signal.SIGKILL)
    return receiver


# proves R5
def test_a_flood_loses_and_doubles_nothing(
    installation: Installation, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [kill_receiver, kill_writer] if installation.database.url.startswith("sqlite") else [kill_receiver]
    receiver = installation.receive()
    load = events(FLOOD * (rounds + 1), prefix="flood")
    patience = PATIENCE + 10 * rounds
    sender, log = installation.start_sending(load, connections=64, deadline=patience, module="tests.crash.flood")
    for number in range(rounds):
        enough = FLOOD * number + FLOOD // 10  # early: a busy machine is late to notice
        eventually(lambda enough=enough: len(log.answers()) > enough, "answers", patience)  # type: ignore[misc]
        assert sender.running, "the flood ended before the kill"
        receiver = ways[number % len(ways)](installation, receiver)
    assert sender.exit_code(patience) == 0, log.statuses()
    assert log.statuses().keys() <= {-1, 200, 202, 503}
    kept = installation.database.events()
    assert kept.keys() == {event["id"] for event in load}
    assert log.acked() == Counter(dict.fromkeys(kept, 1))
    check_deliveries(installation.database, kept, log.acked())
    with capsys.disabled():
        print(f"\nflood with {rounds} kills: {fastest(log):,} acks in the fastest second")
    if LONG:
        assert fastest(log) > 2000


def fastest(log: Log) -> int:
    """Acks in the best second."""
    seconds = Counter(int(answer["time"]) for answer in log.answers() if 200 <= answer["status"] < 300)
    return max(seconds.values())
