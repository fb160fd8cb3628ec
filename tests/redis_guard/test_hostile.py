"""Keys and answers that callers or handlers make hard."""

import asyncio
import itertools
from typing import Any

import pytest
from redis.asyncio import Redis

from hookledger import Answer
from hookledger.contrib.redis import GuardUnavailable, Lease
from hookledger.contrib.redis.commands import Claim, Commands
from hookledger.contrib.redis.keys import fingerprint_of, make_key
from hookledger.contrib.redis.scripts import CLAIM, RELEASE, RENEW
from hookledger.errors import BadResult
from tests.redis_guard.conftest import CALL, MakeGuard, Work
from tests.services.valkey import Valkey

SCRIPTS = {"claim": CLAIM, "renew": RENEW, "release": RELEASE}

HOSTILE: list[str | bytes] = [
    *("k" * 1_000_000, "a\0b", "a\r\nDEL x", "{tag}", "a:b", "*", "\ud800", "ключ", " ", "\udcff"),
    *(b"\xff\xfe\x00", b"\x00", b"a" * 100_000),
]


async def test_hostile_keys_are_keys_like_others(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)
    for part, value in itertools.product(("key", "caller", "source"), HOSTILE):
        first = await guard.run(work, **CALL | {part: value})
        assert not first.repeated, (part, value[:9])
        assert (await guard.run(work, **CALL | {part: value})).answer == first.answer
    assert work.runs == 3 * len(HOSTILE)
    found: list[bytes] = list(await client.keys("*"))  # type: ignore[arg-type]
    for name in found:
        assert len(name) < 250
        assert name.isascii()
        assert name.startswith(b"hookledger:1:")
        assert name.count(b"{") == 1


async def test_hostile_keys_of_started_work_can_be_shown(client: Redis, make_guard: MakeGuard) -> None:
    guard = make_guard(client)
    for value in HOSTILE:
        lease = await guard.begin(**CALL | {"repeat": "never", "key": value, "caller": value})
        assert isinstance(lease, Lease)
        await guard.fail(lease, TimeoutError())
    shown = [status async for status in guard.unknown()]
    assert len(shown) == len(HOSTILE)
    assert all(len(status.key) <= 200 for status in shown)


def test_no_two_callers_share_a_name() -> None:
    """Also where their parts are the same once they are joined, or once they are made readable."""
    parts = ["a", "b", "ab", "a:b", "a_b", "a\0b", "b:c", ":", "{", "a:", ":b"]
    names = [make_key("p", *triple).name for triple in itertools.product(parts, repeat=3)]
    assert len(set(names)) == len(parts) ** 3


async def test_one_customers_key_is_not_anothers(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)
    answers = {
        (await guard.run(work, **CALL | {"caller": caller, "source": source})).answer
        for caller, source in itertools.product(("acme", "globex"), ("orders", "refunds"))
    }
    assert len(answers) == work.runs == 4


@pytest.mark.parametrize("answer", [bytes(2_000), Answer(bytes(2_000)), "text", None, {"a": 1}])
async def test_an_answer_that_cannot_be_stored_does_not_run_the_work_again(
    client: Redis, make_guard: MakeGuard, answer: Any
) -> None:
    guard, runs = make_guard(client, max_bytes=1_000), 0

    async def large(lease: Lease) -> Any:
        nonlocal runs
        runs += 1
        return answer

    for _ in range(3):
        with pytest.raises(BadResult, match=r"not stored: (the answer has|the work must return)"):
            await guard.run(large, **CALL)
    assert runs == 1


async def test_keys_of_another_program_are_not_answers(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client)
    key = make_key("hookledger", "acme", "orders", "k-1")
    for stored in (
        b"1",
        b"B",
        b"Z" + bytes(16) + fingerprint_of(CALL["fingerprint"]),
        b"A" + bytes(16) + fingerprint_of(b"{}"),
    ):
        await client.set(key.record, stored)
        with pytest.raises(BadResult, match=r"damaged|unknown form"):
            await guard.run(work, **CALL)
    await client.delete(key.record)
    await client.lpush(key.record, b"a list")
    with pytest.raises(GuardUnavailable, match="WRONGTYPE"):
        await guard.run(work, **CALL)
    assert work.runs == 0


async def test_a_flood_of_keys_uses_few_connections(client: Redis, make_guard: MakeGuard, work: Work) -> None:
    guard = make_guard(client, max_commands=4)
    await asyncio.gather(*(guard.run(work, **CALL | {"key": f"k-{number}"}) for number in range(300)))
    assert work.runs == 300
    assert len(await client.client_list()) <= 5


async def test_renewals_and_answers_go_before_the_claims_of_a_flood(client: Redis) -> None:
    sent: list[str] = []
    go = asyncio.Event()

    class Slow:
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            sent.append(next(name for name, script in SCRIPTS.items() if script.sha == args[1]))
            await go.wait()
            return await client.eval(SCRIPTS[sent[-1]].text, *args[2:])

    commands = Commands(Slow(), lease=30, window=60, timeout=9, max_commands=1)  # type: ignore[arg-type]
    claims = [Claim(make_key("p", "acme", "orders", str(n)), b"t" * 16, b"f" * 32, b"") for n in range(3)]
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(commands.claim(claim)) for claim in claims]
    tasks.append(asyncio.create_task(commands.renew(claims[0])))
    tasks.append(asyncio.create_task(commands.release(claims[1], did_nothing=True)))
    while not sent:
        await asyncio.sleep(0)
    tasks[1].cancel()
    go.set()
    await asyncio.wait(tasks)
    assert sent == ["claim", "renew", "release", "claim"]


async def test_a_pool_without_a_free_connection_is_no_outage(shared_valkey: Valkey, make_guard: MakeGuard) -> None:
    runs: list[str] = []

    async def work(lease: Lease) -> bytes:
        assert lease.guarded
        runs.append("run")
        return b"done"

    async with Redis.from_url(shared_valkey.url, max_connections=1) as client:
        await client.flushall()
        guard = make_guard(client, away="open")
        outcomes = await asyncio.gather(*(guard.run(work, **CALL, wait=60) for _ in range(20)))
    assert {(outcome.guarded, outcome.stored) for outcome in outcomes} == {(True, True)}
    assert runs == ["run"]
