"""The guard on a cluster: both names of a key are in one slot."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from hookledger.contrib.redis import Guard, Lease
from tests.redis_guard.conftest import CALL, Work
from tests.services.valkey import Valkey


@pytest.fixture
async def cluster() -> AsyncIterator[RedisCluster]:
    """Two nodes, each with half of the slots."""
    with Valkey("--cluster-enabled", "yes") as first, Valkey("--cluster-enabled", "yes") as second:
        async with Redis.from_url(first.url) as one, Redis.from_url(second.url) as two:
            await ask(one, "CLUSTER ADDSLOTSRANGE", 0, 8191)
            await ask(two, "CLUSTER ADDSLOTSRANGE", 8192, 16383)
            await ask(two, "CLUSTER SET-CONFIG-EPOCH", 2)
            await ask(one, "CLUSTER MEET", "127.0.0.1", second.port)
            for node in (one, two):
                while (await ask(node, "CLUSTER INFO"))["cluster_state"] != "ok":
                    await asyncio.sleep(0.05)
        async with RedisCluster.from_url(first.url) as client:
            yield client


async def ask(node: Redis, *command: str | int) -> Any:
    return await node.execute_command(*command)  # type: ignore[no-untyped-call]


async def test_keys_of_both_nodes(cluster: RedisCluster, work: Work) -> None:
    guard = Guard(cluster, away="closed", timeout="3s")
    for number in range(20):
        call = CALL | {"key": f"k-{number}"}
        first = await guard.run(work, **call)
        assert (await guard.run(work, **call)).answer == first.answer
        lease = await guard.begin(**CALL | {"key": f"never-{number}", "repeat": "never"})
        assert isinstance(lease, Lease)
        await lease.renew()
        await guard.fail(lease, TimeoutError())
    assert work.runs == 20
    unknown = [status async for status in guard.unknown()]
    assert sorted(status.key for status in unknown) == sorted(f"never-{number}" for number in range(20))
    for status in unknown:
        await guard.clear(status)
    assert [status async for status in guard.unknown()] == []
