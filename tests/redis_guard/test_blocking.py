"""Plain functions under the guard."""

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis import BlockingGuard, BlockingLease, Guard, InFlight, KeyConflict
from hookledger.errors import UnknownOutcome
from tests.redis_guard.conftest import CALL
from tests.services.valkey import Valkey


@pytest.fixture
def guard(own_valkey: Valkey) -> Iterator[BlockingGuard]:
    blocking = BlockingGuard(
        lambda: Redis.from_url(own_valkey.url), lambda client: Guard(client, away="closed", timeout="3s")
    )
    with blocking:
        yield blocking


def test_the_work_runs_in_the_thread_that_calls(guard: BlockingGuard) -> None:
    threads = []

    def work(lease: BlockingLease) -> bytes:
        threads.append(threading.current_thread())
        lease.renew()
        assert lease.guarded
        assert not lease.lost
        with pytest.raises(InFlight):
            guard.run(work, **CALL)
        return b"done"

    assert guard.run(work, **CALL).answer == b"done"
    assert guard.run(work, **CALL).repeated
    assert threads == [threading.current_thread()]
    with pytest.raises(KeyConflict):
        guard.run(work, **CALL | {"fingerprint": b"other"})


def test_many_threads_run_it_once(guard: BlockingGuard) -> None:
    runs = []

    def work(lease: BlockingLease) -> bytes:
        runs.append(os.urandom(16))
        return runs[-1]

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: guard.run(work, **CALL, wait=60).answer, range(24)))
    assert answers == runs * 24


def test_failed_work_releases_its_key_unless_it_must_not_be_repeated(guard: BlockingGuard) -> None:
    def fails(lease: BlockingLease) -> bytes:
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            guard.run(fails, **CALL)
    never = CALL | {"repeat": "never", "key": "k-2"}
    with pytest.raises(ConnectionError):
        guard.run(fails, **never)
    with pytest.raises(UnknownOutcome):
        guard.run(fails, **never)
    status = guard.call(guard.guard.look(caller="acme", source="orders", key="k-2"))
    guard.call(guard.guard.clear(status))
    assert guard.run(lambda lease: b"done", **never).answer == b"done"


def test_a_forked_process_starts_another_guard(guard: BlockingGuard) -> None:
    guard.run(lambda lease: b"done", **CALL)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if guard.run(lambda lease: b"again", **CALL).answer == b"done" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_leaves_the_connections_of_its_parent_alone(guard: BlockingGuard) -> None:
    async def collect() -> None:
        gc.collect()  # in the guard's thread, where the end of a connection takes it from its event loop

    gc.collect()
    guard.run(lambda lease: b"done", **CALL)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            gc.disable()
            guard.run(lambda lease: b"again", **CALL)
            guard.call(collect())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert guard.run(lambda lease: b"again", **CALL).answer == b"done"


def test_a_close_waits_for_the_work_that_runs(guard: BlockingGuard) -> None:
    began, go = threading.Event(), threading.Event()

    def work(lease: BlockingLease) -> bytes:
        began.set()
        go.wait()
        return b"done"

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(lambda: guard.run(work, **CALL))
        began.wait()
        closing = pool.submit(guard.close)
        go.set()
        assert running.result(timeout=60).answer == b"done"
        closing.result(timeout=60)
    assert guard.run(work, **CALL).repeated
