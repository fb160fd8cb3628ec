"""kill -9 under load: nothing acked is lost, nothing happens twice."""

import os
import signal
from functools import partial

from tests.crash.processes import PATIENCE, Installation, events, eventually

LOAD = 300
"""Events per kill."""


# proves R6
def test_the_receiver_is_killed_under_load(installation: Installation, rounds: int) -> None:
    installation.work()
    receiver = installation.receive()
    load = events(LOAD * (rounds + 2))
    patience = PATIENCE + 10 * rounds
    sender, log = installation.start_sending(load, connections=16, pause=0.01, deadline=patience)
    for number in range(rounds):
        enough = LOAD * number + LOAD // 2
        eventually(partial(log.acked_more_than, enough), "acks")
        assert sender.running, "the load ended before the receiver was killed"
        receiver.kill()
        receiver = installation.receive()
    assert sender.exit_code(patience) == 0, log.statuses()
    statuses = log.statuses()
    assert statuses.keys() <= {-1, 0, 200, 202, 503}
    assert statuses[-1] > 0, "no kill hit a request on its way"
    installation.drain(patience)
    installation.check()
    assert installation.database.states() == {"processed": len(load)}


# proves R59
def test_the_worker_is_killed_under_load(installation: Installation, rounds: int) -> None:
    database = installation.database
    installation.receive()
    workers = [installation.work(), installation.work()]
    load = events(LOAD * (rounds + 1) // 2, "order", "slow", "plain")
    patience = PATIENCE + 10 * rounds
    sender, _ = installation.start_sending(load, connections=4, pause=0.04, deadline=patience)

    def busy(pid: int) -> bool:
        held = f"SELECT 1 AS one FROM {{h}}events WHERE state = 'processing' AND worker LIKE '%:{pid}:%'"
        return bool(database.rows(held))

    def caught(pid: int) -> bool:
        """Stopped while it holds something: otherwise it may be done before the kill."""
        os.kill(pid, signal.SIGSTOP)
        if busy(pid):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    for number in range(rounds):
        victim = workers[number % 2]
        eventually(partial(caught, victim.pid), "the worker to be killed has claimed something")
        victim.kill()
        workers[number % 2] = installation.work()
    assert sender.exit_code(patience) == 0
    installation.drain(patience)
    installation.check()
    assert database.states() == {"processed": len(load)}
    assert database.outcomes()["crashed"] > 0, "no kill hit work in flight"
