"""PgBouncer in transaction mode is killed under load: nothing acked is lost, nothing happens twice."""

import time
from functools import partial

from tests.crash.conftest import Install
from tests.crash.processes import PATIENCE, events, eventually
from tests.services.pgbouncer import PgBouncer

LOAD = 300
"""Events per kill."""


def test_the_pooler_is_killed_under_load(
    install: Install, postgres_url: str, pgbouncer: PgBouncer, rounds: int
) -> None:
    installation = install(postgres_url)
    installation.set("pooler = true")
    installation.use("tests.crash.app:inbox", HOOKLEDGER_DATABASE=pgbouncer.url())
    processes = [installation.receive(), installation.work(), installation.work()]
    eventually(lambda: installation.database.rows("SELECT 1 FROM {h}workers")[1:], "both workers have started")
    load = events(LOAD * (rounds + 2), "order", "slow", "plain")
    patience = PATIENCE + 10 * rounds
    sender, log = installation.start_sending(load, connections=16, pause=0.02, deadline=patience)
    for number in range(rounds):
        enough = LOAD * number + LOAD // 2
        eventually(partial(log.acked_more_than, enough), "acks")
        assert sender.running, "the load ended before the pooler was killed"
        pgbouncer.kill()
        time.sleep(0.1 if number % 2 else 1.5)  # within a lease, and longer than one
        pgbouncer.start()
    assert sender.exit_code(patience) == 0, log.statuses()
    statuses = log.statuses()
    assert statuses.keys() <= {200, 202, 503}
    assert statuses[503] > 0, "no kill hit a request on its way"
    installation.drain(patience)
    installation.check()
    assert installation.database.states() == {"processed": len(load)}
    assert all(process.running for process in processes)
