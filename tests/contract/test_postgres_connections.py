"""Connections change hands without the pool's help; none of them is lost, shared or kept for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from hookledger.errors import Unavailable
from hookledger.store.postgres import connection as module
from hookledger.store.postgres.connection import Connections, nothing


@asynccontextmanager
async def opened(url: str, most: int) -> AsyncIterator[tuple[Connections, asyncpg.Pool[Any]]]:
    pool = await asyncpg.create_pool(url, min_size=0, max_size=most, reset=nothing, command_timeout=30)
    connections = Connections(pool, timeout=60.0, pooler=False)
    try:
        yield connections, pool
    finally:
        await connections.close()


async def pid(connections: Connections) -> int:
    async with connections.use() as connection:
        return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def sleeps(connections: Connections) -> None:
    async with connections.use() as connection:
        await connection.execute("SELECT pg_sleep(20)")


async def busy(url: str, number: int) -> None:
    """Until so many sleep on the server."""
    active = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
    watch = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(60):
            while number != await watch.fetchval(f"{active} AND query ~ '^SELECT pg_sleep'"):
                await asyncio.sleep(0.02)
    finally:
        await watch.close()


async def test_who_is_done_makes_room_for_the_next(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (connections, _):
        pids = await asyncio.wait_for(asyncio.gather(*(pid(connections) for _ in range(20))), 20)
    assert len(set(pids)) == 1


async def test_a_waiter_is_not_starved(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (connections, _):
        going = True

        async def again_and_again() -> None:
            while going:
                await pid(connections)

        others = [asyncio.create_task(again_and_again()) for _ in range(3)]
        try:
            for _ in range(20):
                await asyncio.wait_for(pid(connections), 20)
        finally:
            going = False
            await asyncio.gather(*others)


async def test_what_was_cancelled_is_not_handed_on_in_the_middle_of_its_work(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (connections, _):
        for _ in range(3):
            sleeper = asyncio.create_task(sleeps(connections))
            await busy(postgres_url, 1)
            sleeper.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeper
            assert await asyncio.wait_for(pid(connections), 20)


async def test_a_connection_that_the_server_ended_is_replaced(postgres_url: str) -> None:
    async with opened(postgres_url, 2) as (connections, _):
        first = await pid(connections)
        other = await asyncpg.connect(postgres_url)
        try:
            await other.fetchval("SELECT pg_terminate_backend($1, 10000)", first)
        finally:
            await other.close()
        await asyncio.sleep(0.1)  # the loop hears of it
        assert await pid(connections) != first


async def test_one_that_ends_in_the_middle_is_an_outage_and_then_gone(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (connections, _):
        with pytest.raises(Unavailable):
            async with connections.use() as connection:
                await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        assert await pid(connections)


async def test_unused_connections_are_closed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.2)
    async with opened(postgres_url, 3) as (connections, pool):

        async def hold(together: asyncio.Barrier) -> None:
            async with connections.use():
                await together.wait()

        barrier = asyncio.Barrier(3)
        await asyncio.gather(*(hold(barrier) for _ in range(3)))
        assert (pool.get_size(), pool.get_idle_size()) == (3, 0), "all are kept at hand"
        async with asyncio.timeout(60):
            while pool.get_idle_size() < 2:
                await pid(connections)
                await asyncio.sleep(0.01)
        kept = await pid(connections)
        assert [await pid(connections) for _ in range(5)] == [kept] * 5, "the one in use stays"


async def test_closing_lets_go_of_all(postgres_url: str) -> None:
    async with opened(postgres_url, 3) as (connections, pool):
        await asyncio.gather(*(pid(connections) for _ in range(9)))
        await asyncio.wait_for(connections.close(), 20)
        assert pool.get_size() == 0


async def test_a_transaction_left_open_is_not_handed_on(postgres_url: str) -> None:
    """What the next one records there would be acked, and never be on disk."""
    async with opened(postgres_url, 1) as (connections, _):
        async with connections.use() as connection:
            await connection.execute("BEGIN; CREATE TABLE left_open (x int)")
        async with connections.use() as connection:
            assert not connection.is_in_transaction()
            assert await connection.fetchval("SELECT to_regclass('left_open')") is None
