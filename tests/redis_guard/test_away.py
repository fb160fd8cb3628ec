"""Redis that does not answer, at each step of a call."""

import asyncio
import signal

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis import GuardUnavailable, InFlight, Lease, NotStored
from hookledger.errors import UnknownOutcome
from tests.redis_guard.conftest import CALL, MakeGuard, Work
from tests.services.valkey import Valkey

QUICK = {"lease": "20s", "timeout": "400ms"}


@pytest.fixture
def redis(own_valkey: Valkey) -> Redis:
    return Redis.from_url(own_valkey.url)


async def test_closed_runs_nothing(own_valkey: Valkey, redis: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(redis, **QUICK)
    own_valkey.kill()
    with pytest.raises(GuardUnavailable, match="try again later"):
        await guard.run(work, **CALL)
    assert work.runs == 0
    own_valkey.start()
    assert (await guard.run(work, **CALL)).stored
    assert work.runs == 1


async def test_open_runs_without_a_guard(own_valkey: Valkey, redis: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(redis, away="open", **QUICK)
    own_valkey.kill()
    for _ in range(2):
        outcome = await guard.run(work, **CALL)
        assert (outcome.guarded, outcome.stored, outcome.repeated) == (False, False, False)
    assert work.runs == 2


async def test_a_server_that_hangs_is_away(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(redis, **QUICK)
    own_valkey.signal(signal.SIGSTOP)
    # All of them fail with the first: they do not wait for their turns to time out.
    calls = (guard.run(work, **CALL | {"key": str(number)}) for number in range(200))
    failures = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(failure, GuardUnavailable) for failure in failures)
    assert work.runs == 0
    with pytest.raises(GuardUnavailable, match="keys cannot be listed: no answer within"):
        await anext(aiter(guard.unknown()))
    own_valkey.signal(signal.SIGCONT)


async def test_an_open_call_is_guarded_again_when_redis_is_back(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(redis, away="open", **QUICK)
    own_valkey.kill()

    async def longer_than_the_outage(lease: Lease) -> bytes:
        assert not lease.guarded
        own_valkey.start()
        await lease.renew()
        with pytest.raises(InFlight):
            await guard.run(work, **CALL)
        return b"kept"

    outcome = await guard.run(longer_than_the_outage, **CALL)
    assert (outcome.guarded, outcome.stored) == (True, True)
    assert (await guard.run(work, **CALL)).answer == b"kept"
    assert work.runs == 0


async def test_closed_says_that_the_work_ran_when_its_answer_is_not_stored(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard
) -> None:
    async def dies(lease: Lease) -> bytes:
        own_valkey.kill()
        return b"charged"

    with pytest.raises(NotStored, match="ran and its answer was not stored") as raised:
        await make_guard(redis, **QUICK).run(dies, **CALL)
    assert raised.value.answer == b"charged"


async def test_open_gives_an_answer_that_was_not_stored(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard
) -> None:
    async def dies(lease: Lease) -> bytes:
        own_valkey.kill()
        return b"charged"

    outcome = await make_guard(redis, away="open", **QUICK).run(dies, **CALL)
    assert (outcome.answer, outcome.guarded, outcome.stored) == (b"charged", True, False)


async def test_work_known_to_run_elsewhere_never_runs_without_a_guard(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard, other = make_guard(redis, away="open", **QUICK), make_guard(redis, **QUICK)
    lease = await other.begin(**CALL)
    assert isinstance(lease, Lease)
    waiting = asyncio.create_task(guard.run(work, **CALL, wait=60))
    while not any(task.get_name() == "hookledger-redis-poll" for task in asyncio.all_tasks()):
        await asyncio.sleep(0.01)
    own_valkey.kill()
    with pytest.raises(GuardUnavailable):
        await waiting
    assert work.runs == 0
    await other.fail(lease, TimeoutError())


async def test_a_lease_that_was_not_renewed_in_time_counts_as_lost(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard
) -> None:
    guard = make_guard(redis, lease="500ms", timeout="100ms")
    lease = await guard.begin(**CALL)
    assert isinstance(lease, Lease)
    own_valkey.kill()
    while not lease.lost:
        await asyncio.sleep(0.02)
    with pytest.raises(GuardUnavailable):
        await lease.renew()
    await guard.fail(lease, TimeoutError())


async def test_a_claim_whose_answer_was_lost_is_released(
    own_valkey: Valkey, redis: Redis, make_guard: MakeGuard, work: Work
) -> None:
    """Valkey executes it after the caller gave up; work that must not be repeated has not started."""
    guard = make_guard(redis, **QUICK)
    never = CALL | {"repeat": "never"}
    async with Redis.from_url(own_valkey.url) as separate:
        await separate.ping()
        for script in (True, False):  # with the script unknown and known to the server
            if not script:
                await guard.run(work, **never | {"key": "another"})
            own_valkey.signal(signal.SIGSTOP)
            with pytest.raises(GuardUnavailable):
                await guard.run(work, **never)
            own_valkey.signal(signal.SIGCONT)
            await separate.ping()
    for _ in range(500):
        try:
            await guard.run(work, **never, wait=5)
            break
        except (GuardUnavailable, UnknownOutcome):
            await asyncio.sleep(0.02)
    assert work.runs == 2
