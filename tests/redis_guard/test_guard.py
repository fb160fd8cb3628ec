"""One key: its first call runs, and duplicates get that answer."""

import asyncio
from contextlib import suppress

import pytest
import redis
from redis.asyncio import Redis

from hookledger import Answer
from hookledger.contrib.redis import Guard, GuardUnavailable, InFlight, KeyConflict, Lease
from hookledger.errors import BadResult, ClaimLost, ConfigError, Refused, UnknownOutcome, WrongState
from tests.redis_guard.conftest import CALL, MakeGuard, Work

NEVER = CALL | {"repeat": "never"}


async def names(client: Redis, kind: str) -> list[bytes]:
    return [name async for name in client.scan_iter(match=f"*:{kind}")]


async def expire_leases(client: Redis) -> None:
    """What the server does when the time of a lease is over."""
    for name in await names(client, "lease"):
        await client.delete(name)


async def test_a_duplicate_gets_the_answer_and_runs_nothing(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    first = await make_guard(client).run(work, **CALL)
    second = await make_guard(client).run(work, **CALL)
    assert work.runs == 1
    assert (first.answer, first.repeated) == (second.answer, False)
    assert (second.repeated, second.guarded, second.stored) == (True, True, True)


async def test_an_http_answer_is_the_same_bytes_again(client: Redis, make_guard: MakeGuard) -> None:
    answer = Answer(b"\x00\xff{}", 201, {"Location": "/orders/17", "X-Word": "caf\xe9"})

    async def order(lease: Lease) -> Answer:
        return answer

    guard = make_guard(client)
    assert (await guard.run(order, **CALL)).answer == answer
    again = await guard.run(order, **CALL)
    assert (again.answer, again.repeated) == (answer, True)
    assert again.answer.headers == (("location", "/orders/17"), ("x-word", "caf\xe9"))


async def test_answers_expire_with_the_window_and_leases_before(client: Redis, make_guard: MakeGuard) -> None:
    guard, running, go = make_guard(client), asyncio.Event(), asyncio.Event()

    async def slow(lease: Lease) -> bytes:
        running.set()
        await go.wait()
        return b"done"

    call = asyncio.create_task(guard.run(slow, **CALL))
    await running.wait()
    [lease] = await names(client, "lease")
    assert 0 < await client.pttl(lease) <= 30_000
    go.set()
    await call
    [record] = await names(client, "record")
    assert 86_390_000 < await client.pttl(record) <= 86_400_000
    assert await names(client, "lease") == []


async def test_another_request_under_the_key_is_a_conflict(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)

    async def outer(lease: Lease) -> bytes:
        with pytest.raises(KeyConflict, match="another request"):  # while the first runs
            await guard.run(work, **CALL | {"fingerprint": b"other"}, wait=60)
        return b"first"

    await guard.run(outer, **CALL)
    with pytest.raises(KeyConflict):
        await guard.run(work, **CALL | {"fingerprint": b"other"})
    assert work.runs == 0


async def test_in_flight(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)

    async def outer(lease: Lease) -> bytes:
        with pytest.raises(InFlight) as raised:
            await guard.run(work, **CALL)
        assert raised.value.after > 0
        with pytest.raises(InFlight, match="still"):
            await guard.run(work, **CALL, wait=0.05)
        return b"first"

    await guard.run(outer, **CALL)
    assert work.runs == 0


async def test_those_that_wait_are_limited_and_share_one_poll(client: Redis, make_guard: MakeGuard) -> None:
    guard, other, running, go = (
        make_guard(client, max_waiting=5),
        make_guard(client),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def slow(lease: Lease) -> bytes:
        running.set()
        await go.wait()
        return b"the answer"

    first = asyncio.create_task(other.run(slow, **CALL))
    await running.wait()
    before = {task for task in asyncio.all_tasks() if task.get_name() == "hookledger-redis-poll"}
    waiting = [asyncio.create_task(guard.run(slow, **CALL, wait=60)) for _ in range(8)]
    done, still = await asyncio.wait(waiting, timeout=None, return_when=asyncio.FIRST_EXCEPTION)
    while len(still) > 5:
        more, still = await asyncio.wait(still, return_when=asyncio.FIRST_EXCEPTION)
        done |= more
    assert all(isinstance(task.exception(), InFlight) for task in done)
    polls = {task for task in asyncio.all_tasks() if task.get_name() == "hookledger-redis-poll"}
    assert len(polls - before) == 1
    go.set()
    assert {(await task).answer for task in still} == {(await first).answer} == {b"the answer"}
    assert not any(task.get_name() == "hookledger-redis-poll" and not task.done() for task in polls)


async def test_one_that_waited_runs_the_work_after_the_first_failed(client: Redis, make_guard: MakeGuard) -> None:
    guard, running, go, runs = make_guard(client), asyncio.Event(), asyncio.Event(), 0

    async def fails_first(lease: Lease) -> bytes:
        nonlocal runs
        runs += 1
        if runs == 1:
            running.set()
            await go.wait()
            raise ConnectionError("the bank is away")
        return b"second run"

    first = asyncio.create_task(guard.run(fails_first, **CALL))
    await running.wait()
    waiting = [asyncio.create_task(guard.run(fails_first, **CALL, wait=60)) for _ in range(6)]
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(ConnectionError):
        await first
    outcomes = await asyncio.gather(*waiting)
    assert runs == 2
    assert {outcome.answer for outcome in outcomes} == {b"second run"}
    assert sorted(outcome.repeated for outcome in outcomes) == [False] + [True] * 5


async def test_cancelled_work_releases_the_key(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard, running = make_guard(client), asyncio.Event()

    async def hangs(lease: Lease) -> bytes:
        running.set()
        await asyncio.Event().wait()
        return b""

    call = asyncio.create_task(guard.run(hangs, **CALL))
    await running.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not (await guard.run(work, **CALL, wait=60)).repeated
    assert work.runs == 1


async def test_an_answer_is_stored_when_its_caller_is_cancelled(
    client: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(client)
    lease = await guard.begin(**CALL)
    assert isinstance(lease, Lease)
    call = asyncio.create_task(guard.finish(lease, b"kept"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await guard.run(work, **CALL, wait=60)).answer == b"kept"
    assert work.runs == 0


# ── a lease that is lost ──


async def test_lost_work_is_told_and_its_answer_is_refused(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard, other = make_guard(client), make_guard(client)

    async def frozen(lease: Lease) -> bytes:
        assert not lease.lost
        await lease.renew()
        await expire_leases(client)
        await other.run(work, **CALL)
        with pytest.raises(ClaimLost):
            await lease.renew()
        assert lease.lost
        return b"too late"

    with pytest.raises(ClaimLost, match="may have run twice"):
        await guard.run(frozen, **CALL)
    kept = await guard.run(work, **CALL)
    assert kept.repeated
    assert kept.answer != b"too late"
    assert work.runs == 1


async def test_an_expired_lease_that_no_other_caller_claimed_is_claimed_again(
    client: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(client)

    async def frozen(lease: Lease) -> bytes:
        await expire_leases(client)
        await lease.renew()
        with pytest.raises(InFlight):
            await guard.run(work, **CALL)
        return b"first"

    assert (await guard.run(frozen, **CALL)).stored
    assert (await guard.run(work, **CALL)).answer == b"first"


async def test_the_heartbeat_keeps_the_lease(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard, other = make_guard(client, lease="600ms", timeout="150ms"), make_guard(client)
    kept = False

    async def longer_than_its_lease(lease: Lease) -> bytes:
        nonlocal kept
        [name] = await names(client, "lease")
        value = await client.get(name)
        for _ in range(12):
            await asyncio.sleep(0.1)
            if await client.get(name) != value:
                return b"lost"  # this machine was too busy for the heartbeat
        with pytest.raises(InFlight):
            await other.run(work, **CALL)
        kept = True
        return b"kept"

    async with asyncio.timeout(60):
        while not kept:
            await client.flushall()
            with suppress(GuardUnavailable, ClaimLost):  # too busy for these short times: once more
                await guard.run(longer_than_its_lease, **CALL)


# ── work that must not be repeated ──


async def test_never_is_unknown_after_a_failure_until_an_operator_decides(
    client: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(client)

    async def fails(lease: Lease) -> bytes:
        raise TimeoutError("no answer from the bank")

    with pytest.raises(TimeoutError):
        await guard.run(fails, **NEVER)
    for repeat in ("never", "safe"):
        with pytest.raises(UnknownOutcome, match="must not be repeated"):
            await guard.run(work, **CALL | {"repeat": repeat}, wait=60)
    [status] = [status async for status in guard.unknown()]
    assert (status.state, status.caller, status.source, status.key) == ("unknown", "acme", "orders", "k-1")
    assert status.started_at is not None
    assert await client.pttl(f"{status.name}:record") == -1, "it is kept until an operator decides"

    await guard.clear(status)
    assert not (await guard.run(work, **NEVER)).repeated
    assert [status async for status in guard.unknown()] == []
    with pytest.raises(WrongState, match="look again"):
        await guard.clear(status)
    with pytest.raises(WrongState, match="is done"):
        await guard.clear(await guard.look(caller="acme", source="orders", key="k-1"))
    assert (await guard.run(work, **NEVER)).repeated
    assert work.runs == 1


async def test_an_operator_may_give_the_answer(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)
    lease = await guard.begin(**NEVER)
    assert isinstance(lease, Lease)
    await guard.fail(lease, TimeoutError())
    status = await guard.look(caller="acme", source="orders", key="k-1")
    with pytest.raises(BadResult):
        await guard.resolve(status, bytes(300_000))
    await guard.resolve(status, Answer(b"charged"))
    answer: object = (await guard.run(work, **NEVER)).answer
    assert answer == Answer(b"charged")
    assert work.runs == 0


async def test_what_runs_now_cannot_be_decided(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)

    async def outer(lease: Lease) -> bytes:
        status = await guard.look(caller="acme", source="orders", key="k-1")
        assert status.state == "running"
        with pytest.raises(WrongState):
            await guard.clear(status)
        with pytest.raises(InFlight):
            await guard.run(work, **NEVER)
        return b"done"

    assert (await guard.look(caller="acme", source="orders", key="k-1")).state == "free"
    await guard.run(outer, **NEVER)
    assert (await guard.look(caller="acme", source="orders", key="k-1")).state == "done"


async def test_a_late_answer_ends_unknown_unless_an_operator_was_first(
    client: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(client)
    lease = await guard.begin(**NEVER)
    assert isinstance(lease, Lease)
    await expire_leases(client)
    status = await guard.look(caller="acme", source="orders", key="k-1")
    assert status.state == "unknown"
    assert (await guard.finish(lease, b"late, and true")).stored
    with pytest.raises(WrongState):
        await guard.clear(status)
    assert (await guard.run(work, **NEVER)).answer == b"late, and true"

    late = await guard.begin(**NEVER | {"key": "k-2"})
    assert isinstance(late, Lease)
    await expire_leases(client)
    await guard.resolve(await guard.look(caller="acme", source="orders", key="k-2"), b"decided")
    with pytest.raises(ClaimLost):
        await guard.finish(late, b"late")
    assert (await guard.run(work, **NEVER | {"key": "k-2"})).answer == b"decided"
    assert work.runs == 0


async def test_work_that_certainly_did_nothing_may_run_again(
    client: Redis, make_guard: MakeGuard, work: Work
) -> None:
    guard = make_guard(client)

    async def refused(lease: Lease) -> bytes:
        raise Refused("the card is closed")

    with pytest.raises(Refused):
        await guard.run(refused, **NEVER)
    assert await names(client, "record") == []
    await guard.run(work, **NEVER)
    assert work.runs == 1


# ── declarations ──


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"away": "maybe"}, "away="),
        ({"away": "closed", "lease": "1s", "timeout": "500ms"}, "three timeouts"),
        ({"away": "closed", "window": "5s"}, "shorter than the lease"),
        ({"away": "closed", "prefix": "a*{b}"}, "names of keys"),
    ],
)
async def test_mistakes_are_found_before_the_first_call(client: Redis, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Guard(client, **options)  # type: ignore[arg-type]


def test_a_blocking_client_is_refused() -> None:
    """Its first call would block the event loop, claim the key, and fail with a TypeError."""
    with pytest.raises(ConfigError, match=r"redis\.client\.Redis is a blocking client"):
        Guard(redis.Redis(), away="closed")  # type: ignore[arg-type]


async def test_mistakes_of_a_call(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    for wrong, message in (
        ({"repeat": "maybe"}, "repeat="),
        ({"caller": ""}, "caller is empty"),
        ({"key": b""}, "key is empty"),
        ({"source": None}, "source must be text"),
    ):
        with pytest.raises(ConfigError, match=message):
            await make_guard(client).run(work, **CALL | wrong)
    with pytest.raises(ConfigError, match="away='closed'"):
        await make_guard(client, away="open").run(work, **NEVER)
    with pytest.raises(ConfigError, match="decode_responses"):
        Guard(Redis(decode_responses=True), away="closed")
    with pytest.raises(ConfigError, match="not a client"):
        Guard("redis://localhost", away="closed")  # type: ignore[arg-type]
    assert work.runs == 0
