"""Answers while processes die: each key has one committed execution, and one answer."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.conftest import Install
from tests.crash.processes import PATIENCE, Installation, Process, event, events, eventually, process_state
from tests.crash.sender import signed
from tests.services.ports import free_port
from tests.soak import amount

APP = "tests.crash.answers_app:inbox"
Response = tuple[int, bytes]


@pytest.fixture
def installation(install: Install, database_url: str) -> Installation:
    made = install(database_url)
    made.use(APP)
    made.set('answers = { lease = "1s", concurrency = 8 }')
    return made


async def post(port: int, delivery: dict[str, Any]) -> Response:
    """Status and body; 0 where no answer came."""
    body, headers = signed(delivery)
    lines = [f"POST /{delivery['source']} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await reader.read()
        writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), content
    except (OSError, IndexError):
        return 0, b""


async def answered(port: int, delivery: dict[str, Any]) -> bytes:
    """The answer, asked for until it comes."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status, content = await post(port, delivery)
            if status == 200:
                return content
            assert status in (0, 202, 503), (status, content)
            await asyncio.sleep(0.1)


async def second_receiver(installation: Installation) -> int:
    """One more receiver on the same database, and its port."""
    port = free_port()
    options = ("--port", str(port), "--operator-port", str(free_port()))
    process = installation._start("receive", "hookledger", "receive", *options)
    async with asyncio.timeout(PATIENCE):
        while not await listens(port):
            assert process.running, process.log
            await asyncio.sleep(0.05)
    return port


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def many(ports: list[int], delivery: dict[str, Any], count: int = 100) -> asyncio.Task[list[Response]]:
    async def gathered() -> list[Response]:
        return await asyncio.gather(*(post(ports[n % len(ports)], delivery) for n in range(count)))

    return asyncio.ensure_future(gathered())


async def announced(place: Path) -> int:
    """The process that runs the handler."""
    async with asyncio.timeout(PATIENCE):
        while not place.exists():
            await asyncio.sleep(0.02)
    return int(place.read_text())


async def executions(installation: Installation) -> Counter[str]:
    """How often each key was executed and committed."""
    rows = await asyncio.to_thread(installation.database.effects)
    return Counter(row["event_key"] for row in rows)


def answering_of(receiver: Process) -> list[int]:
    """The processes that answer for a receiver; on SQLite it has another child that writes."""
    found = []
    for pid in receiver.children():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"answering" in command:
            found.append(pid)
    return found


# proves R41
async def test_concurrent_requests_at_two_receivers_are_handled_once(installation: Installation) -> None:
    installation.receive()
    ports = [installation.port, await second_receiver(installation)]
    place, go = installation.folder / "announced", installation.folder / "go"
    delivery = event("evt_1", "answer", announce=str(place), go=str(go))
    sending = many(ports, delivery)
    await announced(place)
    go.touch()
    responses = Counter(await sending)
    assert list(responses.values()) == [100]
    [(status, _)] = responses
    assert status == 200
    assert await executions(installation) == {"evt_1": 1}


# proves R41
async def test_the_process_that_runs_it_is_killed_and_the_next_delivery_completes_it(
    installation: Installation,
) -> None:
    installation.receive()
    ports = [installation.port, await second_receiver(installation)]
    place, go = installation.folder / "announced", installation.folder / "go"
    delivery = event("evt_1", "answer", announce=str(place), go=str(go))
    sending = many(ports, delivery)
    os.kill(await announced(place), signal.SIGKILL)
    found = Counter(await sending)
    assert {status for status, _ in found} <= {200, 503}
    content = await answered(ports[0], delivery)
    assert {body for status, body in found if status == 200} <= {content}
    assert await answered(ports[1], delivery) == content
    assert await executions(installation) == {"evt_1": 1}
    assert await asyncio.to_thread(installation.database.outcomes, "evt_1") == {"crashed": 1, "processed": 1}


@pytest.mark.parametrize("step", range(1, 6))
async def test_killed_at_each_commit_it_answers_once(installation: Installation, step: int) -> None:
    plan = installation.folder / "step"
    plan.write_text(str(step))
    installation.use(APP, HOOKLEDGER_TEST_STEP=str(plan))
    receiver = installation.receive()
    delivery = event("evt_1", "answer")
    [first] = eventually(lambda: answering_of(receiver), "the process that answers")
    content = await answered(installation.port, delivery)
    assert {await answered(installation.port, delivery) for _ in range(3)} == {content}
    assert await executions(installation) == {"evt_1": 1}
    if step <= 4:  # the two commits; a heartbeat may come between
        eventually(lambda: process_state(first) is None, "it was killed")


async def test_a_handler_that_blocks_delays_no_plain_delivery(installation: Installation) -> None:
    installation.work()
    installation.receive()
    await answered(installation.port, event("evt_first", "answer"))  # the process that answers has started
    place, go = installation.folder / "announced", installation.folder / "go"
    delivery = event("evt_late", "late", announce=str(place), go=str(go))
    assert await post(installation.port, delivery) == (202, b"working on it")
    await announced(place)  # and blocks since then
    plain = [{**one, "source": "stripe"} for one in events(300)]
    log = await asyncio.to_thread(installation.send, *plain, connections=16)
    assert log.statuses() == {202: 300}
    assert not go.exists()
    assert await post(installation.port, delivery) in ((202, b"working on it"), (503, b'{"error":"unavailable"}'))
    go.touch()
    content = await answered(installation.port, delivery)
    assert (await post(installation.port, delivery)) == (200, content)
    await asyncio.to_thread(installation.drain)
    assert await executions(installation) == {"evt_first": 1, "evt_late": 1, **{one["id"]: 1 for one in plain}}


async def test_a_handler_that_dies_loses_no_plain_delivery(installation: Installation) -> None:
    installation.work()
    receiver = installation.receive()
    await answered(installation.port, event("evt_first", "answer"))
    place, go = installation.folder / "announced", installation.folder / "go"
    plain = [{**one, "source": "stripe"} for one in events(600)]
    sender, log = installation.start_sending(plain, connections=16, pause=0.01)
    delivery = event("evt_late", "late", announce=str(place), go=str(go), dies=True)
    first = asyncio.ensure_future(post(installation.port, delivery))
    pid = await announced(place)
    go.touch()
    assert await first == (202, b"working on it")
    await asyncio.to_thread(eventually, lambda: process_state(pid) is None, "it died")
    content = await answered(installation.port, delivery)
    assert await asyncio.to_thread(sender.exit_code) == 0
    assert log.statuses() == {202: len(plain)}
    assert (await post(installation.port, delivery)) == (200, content)
    assert receiver.running
    await asyncio.to_thread(installation.drain)
    assert await executions(installation) == {"evt_first": 1, "evt_late": 1, **{one["id"]: 1 for one in plain}}


async def test_one_that_freezes_with_the_write_lock_is_killed(install: Install, sqlite_url: str) -> None:
    installation = await asyncio.to_thread(install, sqlite_url)
    installation.use(APP)
    installation.set('answers = { lease = "1s" }')
    receiver = installation.receive()
    place = installation.folder / "announced"
    delivery = event("evt_frozen", "freeze", announce=str(place))
    sending = asyncio.ensure_future(post(installation.port, delivery))
    async with asyncio.timeout(PATIENCE):
        while not place.exists():
            await asyncio.sleep(0.02)
    plain = [{**one, "source": "stripe"} for one in events(50)]
    await asyncio.to_thread(installation.send, *plain)  # every one of them is acked in the end
    assert (await sending)[0] == 503
    await answered(installation.port, delivery)
    assert (await executions(installation))["evt_frozen"] == 1
    assert "holds SQLite's write lock too long" in receiver.log


# proves R41
async def test_keys_whose_handler_dies_at_random_have_one_execution_and_one_answer(
    installation: Installation,
) -> None:
    keys = amount(60, 400, 5000)
    installation.use(APP, HOOKLEDGER_TEST_SHARE="0.1")
    await asyncio.to_thread(installation.serve)
    contents: dict[str, set[bytes]] = {f"evt_{n:05}": set() for n in range(keys)}
    asked = [name for name in contents for _ in range(3)]
    random.Random(keys).shuffle(asked)
    waiting = iter(asked)

    async def sender() -> None:
        for name in waiting:
            contents[name].add(await answered(installation.port, event(name, "answer")))

    async with asyncio.timeout(PATIENCE + keys):
        await asyncio.gather(*(sender() for _ in range(16)))
    assert {len(found) for found in contents.values()} == {1}
    assert await executions(installation) == dict.fromkeys(contents, 1)
    await asyncio.to_thread(installation.check)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_it_ends_with_its_receiver_and_finishes_what_runs(installation: Installation, number: int) -> None:
    receiver = installation.receive()
    place, go = installation.folder / "announced", installation.folder / "go"
    delivery = event("evt_1", "answer", announce=str(place), go=str(go))
    sending = asyncio.ensure_future(post(installation.port, delivery))
    pid = await announced(place)
    if number == signal.SIGKILL:
        receiver.kill()
    else:
        os.killpg(receiver.pid, number)
    go.touch()
    await asyncio.to_thread(eventually, lambda: process_state(pid) is None, "the answering process has ended")
    status, _ = await sending
    assert status in (0, 200, 503)
    assert await executions(installation) == {"evt_1": 1}
    assert await asyncio.to_thread(installation.database.states) == {"processed": 1}
