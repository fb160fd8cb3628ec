"""SQLite alone: arrivals recorded by a process of its own are recorded as by any other store, or not acked."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, SchemaMismatch, Unavailable
from hookledger.model import Arrival, Recorded
from hookledger.states import DeliveryOutcome
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from hookledger.store.sqlite import writer_client as scribe
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import Raw, arrival, delivered, event, item, record

TABLES = ("identities", "requests", "events", "deliveries")


class Still(Clock):
    def time(self) -> float:
        return 1_800_000_000.0


async def opened(path: Path, *, writer_process: bool = True, migrated: bool = True) -> Store:
    store = connect(f"sqlite:///{path}", clock=Still())
    await store.open(writer_process=writer_process)
    if migrated:
        await store.migrate()
    return store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """One whose writer process records."""
    store = await opened(tmp_path / "inbox.db")
    yield store
    await store.close()


def scribes() -> list[int]:
    """The processes of ours that are scribes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid() and any(b"writer_process import main" in word for word in words):
            found.append(int(folder.name))
    return found


def some(chance: random.Random) -> Arrival:
    """An arrival of few keys and contents, so that all kinds of meetings happen."""
    several = chance.random() < 0.2
    made = [
        item(
            f"evt_{chance.randrange(12)}",
            b"%d" % chance.randrange(3),
            unsigned=chance.random() < 0.4,
            **chance.choice(({}, {}, {"invalid": "no JSON"}, {"skip": "observed"}, {"review": "old"})),
        )
        for _ in range(chance.randrange(5) if several else 1)
    ]
    sent = arrival(*made) if made else msgspec.structs.replace(arrival(), items=(), event_ids=())
    return msgspec.structs.replace(sent, reconciled=chance.random() < 0.1)


async def test_it_records_what_a_store_records(store: Store, tmp_path: Path) -> None:
    other = await opened(tmp_path / "other.db", writer_process=False)
    chance, seen = random.Random(5), set()
    for _ in range(60):
        batch = [some(chance) for _ in range(chance.randrange(1, 9))]
        expected = await other.record(batch)
        assert await store.record(batch) == expected
        seen |= {one.outcome for found in expected for one in found}
    assert seen >= set(DeliveryOutcome) - {DeliveryOutcome.RECONCILED}
    for table in TABLES:
        assert await Raw(store).all(table) == await Raw(other).all(table)
    await other.close()


async def test_batches_at_the_same_moment(store: Store) -> None:
    sent = [[delivered(f"evt_{n}_{place}") for place in range(5)] for n in range(20)]
    found = await asyncio.gather(*(store.record(batch) for batch in sent))
    assert found == [[[Recorded(DeliveryOutcome.ACCEPTED, one.event_ids[0])] for one in batch] for batch in sent]
    assert len(scribes()) == 1


async def test_errors_are_the_stores_own(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BadData):
        await store.record([arrival(item(provider_id="\ud800"))])
    with pytest.raises(BadData):
        await store.record([arrival(item(occurred_at=1e300))])
    assert await record(store, delivered())
    bare = await opened(tmp_path / "bare.db", migrated=False)
    with pytest.raises(SchemaMismatch, match="migrate"):
        await bare.record([delivered()])
    await bare.close()


async def test_a_writer_process_that_is_killed(store: Store) -> None:
    """What it had is not acked; the next ones go to another."""
    await record(store, delivered("evt_before"))
    [first] = scribes()
    os.kill(first, signal.SIGSTOP)
    unsure = asyncio.ensure_future(store.record([delivered("evt_unsure")]))
    await asyncio.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(Unavailable, match="not known"):
        await unsure
    await sooner_or_later(store, "evt_after")
    assert first not in scribes()
    assert await Raw(store).run("SELECT key FROM events ORDER BY key") == [("evt_after",), ("evt_before",)]


async def sooner_or_later(store: Store, key: str) -> None:
    """Recorded, by a scribe that may have to be started first."""
    for _ in range(600):
        try:
            await record(store, delivered(key))
        except Unavailable:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail("no other scribe is started")


@pytest.fixture
async def impatient(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """One whose scribe has started, and may from now on say nothing for half a second; the next has all its time."""
    with monkeypatch.context() as patch:
        patch.setattr(scribe, "LOOKS", 1000)  # of 25 ms
        await record(store, delivered("evt_before"))
    monkeypatch.setattr(scribe, "LOOKS", 20)
    return store


async def test_an_unresponsive_writer_process_is_killed(impatient: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = scribes()
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(Unavailable, match="not known"):
        await impatient.record([delivered("evt_unsure")])
    monkeypatch.undo()
    await sooner_or_later(impatient, "evt_after")
    assert first not in scribes()


async def test_one_that_only_health_checks_ask(impatient: Store) -> None:
    """They give up before it is ended, and whoever believes them sends no delivery that would wait longer."""
    [first] = scribes()
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(impatient.health(), 0.2)
    for _ in range(1200):
        if first not in scribes():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it stands still for ever")


async def test_one_that_is_slow_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions wait for one another: what counts is since when nothing was answered, not since when one waits."""
    path = tmp_path / "inbox.db"
    store = SqliteStore(path, wait=0.2)
    await store.open(writer_process=True)
    await store.migrate()
    with monkeypatch.context() as patch:
        patch.setattr(scribe, "LOOKS", 1000)
        await record(store, delivered("evt_before"))
    first = scribes()
    monkeypatch.setattr(scribe, "LOOKS", 50)  # one second
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    asked = (store.record([delivered(f"evt_{n}")]) for n in range(10))
    refused = await asyncio.gather(*asked, return_exceptions=True)
    other.close()
    assert {(type(error), str(error)) for error in refused} == {(Unavailable, "SQLite: database is locked")}
    assert await record(store, delivered("evt_after"))
    assert scribes() == first
    await store.close()


async def test_what_lies_in_the_folder_is_not_the_scribes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("signal", "queue", "msgspec", "hookledger"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `--app` does
    assert await record(store, delivered())


@pytest.mark.parametrize("given_up", [True, False])
async def test_it_is_closed_while_it_opens(tmp_path: Path, given_up: bool) -> None:
    store = await opened(tmp_path / "inbox.db")
    recording = asyncio.ensure_future(store.record([delivered()]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if given_up:
        recording.cancel()
    await store.close()
    [found] = await asyncio.gather(recording, return_exceptions=True)
    assert isinstance(found, asyncio.CancelledError if given_up else Unavailable | list)
    assert scribes() == []


async def test_only_its_receiver_ends_it(tmp_path: Path) -> None:
    store = await opened(tmp_path / "inbox.db")
    [kept] = await record(store, delivered("evt_1"))
    [process] = scribes()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(process, number)
    assert (await record(store, delivered("evt_1")))[0].event_id == kept.event_id
    assert (await event(store, kept.event_id)).deliveries == 2
    await store.close()
    assert scribes() == []


async def test_no_python_to_start(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(Unavailable, match="cannot be started"):
        await store.record([delivered()])
    health = await store.health()
    assert not health.writable
    assert "writer process" in (health.problem or "")
