"""Bulk work under kill -9: each event of the frozen set is acted on once, whoever dies."""

import asyncio
import json
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any

from hookledger.clock import Clock
from hookledger.ledger import Completion
from hookledger.model import Kind
from hookledger.states import CallOutcome
from hookledger.store.connect import connect
from tests.builders import delivered, way_out
from tests.crash.checker import Database, check_books
from tests.crash.conftest import Install
from tests.crash.processes import PATIENCE, Installation, Process, eventually
from tests.ledger import intent
from tests.soak import amount

EVENTS = amount(600, 2_000, 50_000)
PER_SECOND = amount(400, 400, 300)
PATIENT = PATIENCE + EVENTS / 50


def take_in(url: str, count: int) -> None:
    """So many deliveries, recorded as the intake would."""

    async def main() -> None:
        store = connect(url, clock=Clock())
        await store.open()
        for first in range(0, count, 500):
            bodies = {f"evt_{n:05}": b'{"n": %d}' % n for n in range(first, min(first + 500, count))}
            await store.record([delivered(key, body, type="order") for key, body in bodies.items()])
        await store.close()

    asyncio.run(main())


def take_in_doubt(url: str, count: int) -> None:
    """The same, and each of them waits for a person: nobody knows whether its call happened."""

    async def main() -> None:
        store = connect(url, clock=Clock())
        await store.open()
        while owners := await store.claim("gone", [Kind("stripe", "order")], 200, 600.0):
            intents = [intent(owner, owner.key) for owner in owners]
            await store.ledger.start(intents, "gone")
            await store.ledger.finish([Completion(i.identity, 1, CallOutcome.UNKNOWN) for i in intents])
            await store.settle([way_out(owner, "review") for owner in owners])
        await store.close()

    take_in(url, count)
    asyncio.run(main())


def command(installation: Installation, *words: str) -> Process:
    return installation._start("command", "hookledger", *words)


def job(database: Database) -> dict[str, Any]:
    [found] = database.rows("SELECT * FROM {h}jobs")
    return found


def done_by(database: Database, process: Process, at_least: int) -> bool:
    """Whether this process has the job, and so many events are done."""
    found = job(database)
    return f":{process.pid}:" in (found["worker"] or "") and found["done"] >= at_least


def pace(database: Database) -> float:
    """Events a second while somebody ran the job: less the gaps in which nobody did."""
    epoch = "ended_at / 1e6" if database.url.startswith("sqlite") else "extract(epoch FROM ended_at)::float8"
    rows = database.rows(f"SELECT {epoch} AS at, count(*) AS n FROM {{h}}job_items GROUP BY 1 ORDER BY 1")
    steps = [(row["at"], row["n"]) for row in rows]
    gaps = [after[0] - before[0] for before, after in pairwise(steps)]
    idle = sum(gap for gap in gaps if gap > 0.9)
    return float(sum(n for _, n in steps[1:]) / (steps[-1][0] - steps[0][0] - idle))


# proves R46
def test_a_bulk_replay_that_is_killed_twice(install: Install, database_url: str) -> None:
    installation = install(database_url)
    database = installation.database
    take_in(database_url, EVENTS)
    worker = installation.work()
    eventually(lambda: database.states() == {"processed": EVENTS}, "all were processed once", PATIENT)
    options = ("--count", str(EVENTS), "--per-second", str(PER_SECOND), "--reason", "the outage is over", "--detach")
    planned = command(installation, "bulk", "replay", "--state", "processed", *options)
    assert planned.exit_code() == 0, planned.log
    for number in (1, 2):
        eventually(partial(done_by, database, worker, EVENTS * number // 4), "it is being replayed", PATIENT)
        worker.kill()
        assert job(database)["state"] == "running", "the job was over before the kill"
        worker = installation.work()
    eventually(lambda: job(database)["state"] == "done", "the job is done", PATIENT)
    installation.drain(PATIENT)

    found = job(database)
    assert (found["total"], found["done"], found["not_allowed"], found["fence"]) == (EVENTS, EVENTS, 0, 3)
    runs = database.rows("SELECT state, run, count(*) AS n FROM {h}events GROUP BY state, run")
    assert runs == [{"state": "processed", "run": 2, "n": EVENTS}]
    times = Counter(row["event_id"] for row in database.rows("SELECT event_id FROM {h}actions WHERE name = 'replay'"))
    assert len(times) == EVENTS
    assert set(times.values()) == {1}, "replayed twice"
    handled = database.rows(
        "SELECT run, count(*) AS n, count(DISTINCT event_id) AS events FROM {h}attempts "
        "WHERE outcome = 'processed' GROUP BY run ORDER BY run"
    )
    assert handled == [{"run": run, "n": EVENTS, "events": EVENTS} for run in (1, 2)]
    assert set(Counter(row["event_key"] for row in database.effects()).values()) == {2}
    check_books(database)
    print(f"{EVENTS} events, asked for {PER_SECOND} a second, held {pace(database):.1f}")


def test_a_bulk_resolve_that_is_killed(install: Install, database_url: str) -> None:
    installation = install(database_url)
    database = installation.database
    take_in_doubt(database_url, 120)
    about = ("charge", "--did-not-happen", "--count", "120", "--per-second", "80", "--reason", "none arrived")
    first = command(installation, "bulk", "resolve", *about)
    eventually(lambda: database.rows("SELECT 1 FROM {h}jobs WHERE done > 20"), "it runs")
    first.kill()
    found = job(database)
    assert found["state"] == "running", "the job was over before the kill"
    decided = database.rows("SELECT 1 FROM {h}actions WHERE name = 'resolve'")
    assert len(decided) == found["done"], "a decision that the job does not know of, or the other way round"
    second = command(installation, "jobs", "run", str(found["id"]), "--json")
    assert second.exit_code() == 0, second.log
    assert json.loads(second.log.splitlines()[-1])["done"] == 120
    decided = database.rows("SELECT event_id FROM {h}actions WHERE name = 'resolve'")
    times = Counter(row["event_id"] for row in decided)
    assert (len(times), set(times.values())) == (120, {1}), "each decided once"
    effects = database.rows("SELECT state, fence, decided, count(*) AS n FROM {h}effects GROUP BY 1, 2, 3")
    assert effects == [{"state": "planned", "fence": 3, "decided": "did_not_happen", "n": 120}]
    assert database.states() == {"pending": 120}
    check_books(database)


def test_without_a_worker_the_command_runs_it(install: Install, database_url: str) -> None:
    installation = install(database_url)
    database = installation.database
    take_in(database_url, 300)
    options = ("--count", "300", "--per-second", "50", "--reason", "not ours")
    first = command(installation, "bulk", "discard", "--state", "pending", *options)
    eventually(lambda: database.rows("SELECT 1 FROM {h}jobs WHERE done > 0"), "it runs")
    assert "No worker is alive" in first.log
    first.kill()
    ident = database.rows("SELECT id FROM {h}jobs")[0]["id"]
    second = command(installation, "jobs", "run", str(ident), "--json")
    assert second.exit_code() == 0, second.log
    assert json.loads(second.log.splitlines()[-1])["done"] == 300
    assert database.states() == {"discarded": 300}
    assert database.rows("SELECT count(*) AS n FROM {h}actions WHERE name = 'discard'") == [{"n": 300}]
    check_books(database)
