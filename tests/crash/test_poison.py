"""An event that kills its worker each time: it ends in the dead letter, and takes nobody with it."""

import re

from tests.crash.conftest import Install
from tests.crash.processes import event, events, eventually


# proves R23
def test_a_poison_event_ends_in_the_dead_letter(install: Install, database_url: str) -> None:
    retry = {"attempts": 4, "initial_delay": "50ms", "max_delay": "200ms"}
    installation = install(database_url, concurrency=32, retry=retry)
    database = installation.database
    server = installation.serve()
    neighbours = [event(f"evt_{n:02}", "slow", seconds=[3, 3]) for n in range(20)]
    installation.send(*neighbours, event("evt_poison", "poison"), connections=21)
    eventually(lambda: database.event("evt_poison")["crashes"] == 2, "the second crash")

    # From now on it is processed alone, whatever else comes.
    latecomers = events(60, "slow", prefix="late")
    sender, _ = installation.start_sending(latecomers, connections=1, pause=0.1)
    assert sender.exit_code() == 0
    installation.drain()
    installation.check()
    waits = re.findall(r"work ended with -?\d+; starting it again in ([\d.]+) s", server.log)
    assert waits == ["0.1"] * 4, "whoever a poison event kills is back at once"
    poison = database.event("evt_poison")
    assert poison["state"] == "failed"
    assert poison["reason"] == "attempts exhausted (4): the worker died (crash 4)"
    assert database.outcomes("evt_poison") == {"crashed": 4}
    rows = database.events()
    assert database.states() == {"processed": 80, "failed": 1}
    assert any(rows[neighbour["id"]]["crashes"] == 2 for neighbour in neighbours), "nobody was claimed beside it"
    assert {rows[latecomer["id"]]["crashes"] for latecomer in latecomers} == {0}
