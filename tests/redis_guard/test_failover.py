"""What a failover loses: the page names this window, and here it is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis import Guard, InFlight, Lease
from hookledger.errors import UnknownOutcome
from tests.redis_guard.conftest import CALL, MakeGuard, Work
from tests.services.link import Link
from tests.services.valkey import Valkey

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "redis.md"
SENTENCE = (
    "After a failover, every key whose last write had not reached the replica is as it was before: "
    "a duplicate of it runs the work again."
)


class Pair(NamedTuple):
    """A primary with a replica; the application knows one address."""

    primary: Valkey
    replica: Valkey
    address: Link
    replication: Link
    client: Redis

    async def replicated(self) -> None:
        """Return when the replica has every write so far."""
        async with Redis.from_url(self.primary.url) as primary:
            await primary.set("written", "to have something to wait for")
            while not await primary.wait(1, 500):
                pass

    async def fail_over(self) -> None:
        """The primary dies, and the replica takes its place with what it has."""
        self.replication.cut()
        self.primary.kill()
        async with Redis.from_url(self.replica.url) as replica:
            await replica.replicaof("NO", "ONE")
        self.address.lead_to(self.replica.port)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    with Valkey("--repl-diskless-sync-delay", "0") as primary:
        async with Link(primary.port) as replication, Link(primary.port) as address:
            options = ("--replicaof", "127.0.0.1", str(replication.port))
            with Valkey(*options) as replica:
                async with Redis.from_url(address.url) as client:
                    pair = Pair(primary, replica, address, replication, client)
                    await pair.replicated()
                    yield pair


@pytest.fixture
def guard(pair: Pair, make_guard: MakeGuard) -> Guard:
    return make_guard(pair.client)


# proves R42
async def test_what_the_replica_did_not_have_runs_twice(pair: Pair, guard: Guard, work: Work) -> None:
    before = CALL | {"key": "replicated before"}
    within = CALL | {"key": "acknowledged within the window"}
    kept = await guard.run(work, **before)
    await pair.replicated()
    pair.replication.cut()
    lost = await guard.run(work, **within)
    assert lost.stored, "Redis acknowledged it"
    assert (await guard.run(work, **within)).answer == lost.answer
    assert work.runs == 2

    await pair.fail_over()
    assert (await guard.run(work, **before)).answer == kept.answer
    again = await guard.run(work, **within)
    assert not again.repeated
    assert again.answer != lost.answer
    assert work.runs == 3
    assert SENTENCE in " ".join(PAGE.read_text().split())


async def test_also_work_that_must_not_be_repeated(pair: Pair, guard: Guard, work: Work) -> None:
    """Its marker is one of the writes that a failover loses: repeat="never" is no promise then."""
    never = CALL | {"repeat": "never"}

    async def fails(lease: Lease) -> bytes:
        work.runs += 1
        raise TimeoutError("the outcome is unknown")

    pair.replication.cut()
    with pytest.raises(TimeoutError):
        await guard.run(fails, **never)
    with pytest.raises(UnknownOutcome):
        await guard.run(work, **never)
    await pair.fail_over()
    await guard.run(work, **never)
    assert work.runs == 2


async def test_work_that_runs_during_a_failover_gets_its_key_again(pair: Pair, guard: Guard, work: Work) -> None:
    async def outlives_the_primary(lease: Lease) -> bytes:
        work.runs += 1
        await pair.fail_over()
        await lease.renew()  # as the heartbeat does
        with pytest.raises(InFlight):
            await guard.run(work, **CALL)
        return b"the only answer"

    pair.replication.cut()
    await guard.run(outlives_the_primary, **CALL)
    assert (await guard.run(work, **CALL)).answer == b"the only answer"
    assert work.runs == 1


async def test_work_that_runs_during_a_failover_is_told_when_another_was_first(
    pair: Pair, guard: Guard, work: Work
) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    async def outlives_the_primary(lease: Lease) -> bytes:
        running.set()
        await go.wait()
        return b"too late"

    pair.replication.cut()
    first = asyncio.create_task(guard.run(outlives_the_primary, **CALL))
    await running.wait()
    await pair.fail_over()
    kept = await guard.run(work, **CALL)
    go.set()
    with pytest.raises(Exception, match="may have run twice"):
        await first
    assert (await guard.run(work, **CALL)).answer == kept.answer


async def test_a_restart_without_persistence_forgets_everything(
    own_valkey: Valkey, make_guard: MakeGuard, work: Work
) -> None:
    async with Redis.from_url(own_valkey.url) as client:
        guard = make_guard(client)
        await guard.run(work, **CALL)
        own_valkey.kill()
        own_valkey.start()
        assert not (await guard.run(work, **CALL)).repeated
    assert work.runs == 2


async def test_a_restart_with_an_append_only_file_keeps_what_was_synced(make_guard: MakeGuard, work: Work) -> None:
    with Valkey("--appendonly", "yes", "--appendfsync", "always") as server:
        async with Redis.from_url(server.url) as client:
            guard = make_guard(client)
            first = await guard.run(work, **CALL)
            server.kill()
            server.start()
            assert (await guard.run(work, **CALL)).answer == first.answer
    assert work.runs == 1
