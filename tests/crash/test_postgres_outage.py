"""PostgreSQL goes away under load and comes back."""

import time
from pathlib import Path
from typing import Literal

import pytest

from tests.crash.conftest import Install
from tests.crash.processes import event, events, eventually
from tests.services.postgres import Postgres
from tests.soak import amount


# proves R8
@pytest.mark.parametrize("how", ["immediate", "fast"])
def test_an_outage_longer_than_the_lease(
    install: Install, postgres_server: Postgres, tmp_path: Path, how: Literal["immediate", "fast"]
) -> None:
    installation = install(postgres_server.create_database("outage"))
    database = installation.database
    announced, go = tmp_path / "announced", tmp_path / "go"
    receiver, worker = installation.receive(), installation.work()
    installation.send(event("evt_long", "freeze", announce=str(announced), go=str(go)))
    eventually(announced.exists, "a handler is running")
    load = events(amount(600, 1500, 3000), "order", "slow", "plain")
    sender, log = installation.start_sending(load, connections=8, pause=0.02)
    eventually(lambda: len(log.acked()) > 200, "acks")

    postgres_server.stop(how)
    eventually(lambda: log.statuses()[503] > 20, "answers while the database is away")
    time.sleep(2.5)  # the lease is one second
    postgres_server.start()
    go.touch()

    assert sender.exit_code() == 0, log.statuses()
    refused = [answer for answer in log.answers() if answer["status"] not in (200, 202)]
    assert {(answer["status"], answer["retry_after"]) for answer in refused} == {(503, "5")}
    installation.drain()
    installation.check()
    assert database.states() == {"processed": len(load) + 1}
    assert database.outcomes()["crashed"] == 0, "a live worker was declared dead"
    assert receiver.running
    assert worker.running
